//! The log of a control plane: one line of JSON on standard error for each event of pond's own, spans left out.

use std::fmt::Debug;

use anyhow::Context;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::{output, runs};

struct Lines;

/// From here on events are written.
pub(super) fn to_stderr() -> anyhow::Result<()> {
    tracing::subscriber::set_global_default(Lines).context("setting up the log")
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::INFO && metadata.target().starts_with("pond")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        // Spans are not enabled; an id must be given all the same, and none may be zero.
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(Map::new());
        fields.0.insert("at".to_owned(), runs::now().to_string().into());
        fields.0.insert("level".to_owned(), event.metadata().level().as_str().to_lowercase().into());
        fields.0.insert("target".to_owned(), event.metadata().target().into());
        event.record(&mut fields);
        output::say(&Value::Object(fields.0).to_string());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_error(&mut self, field: &Field, fault: &(dyn std::error::Error + 'static)) {
        let mut causes = vec![fault.to_string()];
        let mut source = fault.source();
        while let Some(cause) = source {
            causes.push(cause.to_string());
            source = cause.source();
        }
        self.0.insert(field.name().to_owned(), causes.join(": ").into());
    }
}
