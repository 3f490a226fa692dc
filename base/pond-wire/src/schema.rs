//! JSON Schema (2020-12) of the run document and the sandbox document, generated from the tables its parser reads with. Where a rule does not fit
//! a schema (bounds of quantities, graphs, rules between fields) the schema accepts more than the parser; never less.

use pond_policy::block::SANDBOX_SHAPE;
use pond_policy::run::RUN_SHAPE;
use pond_policy::sandboxes::SPEC_SHAPE;
use pond_policy::shape::{Field, Kind, Need, Numeric, QuantityForm, Shape, TextForm};
use serde_json::{Map, Value, json};

/// The schema of a whole run document.
pub fn run_document() -> Value {
    document(&RUN_SHAPE)
}

/// The schema of a sandbox document.
pub fn sandbox_document() -> Value {
    document(&SPEC_SHAPE)
}

/// The schema of a sandbox block on its own.
pub fn sandbox_block() -> Value {
    document(&SANDBOX_SHAPE)
}

fn document(root: &'static Shape) -> Value {
    let mut definitions = Map::new();
    define(root, &mut definitions);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": root.name,
        "description": root.doc,
        "$ref": reference(root),
        "$defs": definitions,
    })
}

fn define(shape: &'static Shape, definitions: &mut Map<String, Value>) {
    let properties: Map<String, Value> =
        shape.fields.iter().map(|field| (field.name.to_owned(), property(field))).collect();
    let required: Vec<&str> =
        shape.fields.iter().filter(|field| is_required(field)).map(|field| field.name).collect();
    let definition = json!({
        "type": "object",
        "description": shape.doc,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    definitions.insert(shape.name.to_owned(), definition);
    for field in shape.fields {
        define_within(&field.kind, definitions);
    }
}

fn define_within(kind: &'static Kind, definitions: &mut Map<String, Value>) {
    match kind {
        Kind::Object(shape) => define(shape, definitions),
        Kind::List { of, .. } | Kind::Map { of, .. } => define_within(of, definitions),
        Kind::Choice { .. } | Kind::Text(_) | Kind::Flag | Kind::Quantity { .. } => {}
    }
}

fn property(field: &Field) -> Value {
    let mut value = of_kind(&field.kind);
    if let Value::Object(entries) = &mut value {
        entries.insert("description".to_owned(), field.doc.into());
    }
    value
}

fn of_kind(kind: &Kind) -> Value {
    match kind {
        Kind::Choice { names, .. } => json!({"type": "string", "enum": names}),
        Kind::Text(form) => of_text(form),
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Quantity { form, .. } => of_quantity(form),
        Kind::Object(shape) => json!({"$ref": reference(shape)}),
        Kind::List { of, least, most } => {
            json!({"type": "array", "items": of_kind(of), "minItems": least, "maxItems": most})
        }
        Kind::Map { key, of, most } => json!({
            "type": "object",
            "propertyNames": of_text(key),
            "additionalProperties": of_kind(of),
            "maxProperties": most,
        }),
    }
}

/// Length in characters is at most length in bytes, so the bound accepts all that the parser does.
fn of_text(form: &TextForm) -> Value {
    json!({"type": "string", "maxLength": form.most, "pattern": form.pattern})
}

fn of_quantity(form: &QuantityForm) -> Value {
    let number = match form.number {
        Numeric::Integer => "integer",
        Numeric::Decimal => "number",
    };
    json!({"anyOf": [{"type": number, "minimum": 0}, {"type": "string", "pattern": form.pattern}]})
}

fn is_required(field: &Field) -> bool {
    match field.need {
        Need::Required(_) => true,
        Need::Optional => false,
    }
}

fn reference(shape: &Shape) -> String {
    format!("#/$defs/{}", shape.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMITTED: &str =
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/run.schema.json"));

    #[test]
    fn the_committed_schema_is_the_generated_one() {
        let committed: Value = serde_json::from_str(COMMITTED).unwrap();
        assert_eq!(
            committed,
            run_document(),
            "run: cargo run -p pond -- policy schema > docs/schema/run.schema.json"
        );
    }

    const COMMITTED_SANDBOX: &str =
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/sandbox.schema.json"));

    #[test]
    fn the_committed_sandbox_schema_is_the_generated_one() {
        let committed: Value = serde_json::from_str(COMMITTED_SANDBOX).unwrap();
        assert_eq!(
            committed,
            sandbox_document(),
            "run: cargo run -p pond -- policy schema sandbox > docs/schema/sandbox.schema.json"
        );
    }

    #[test]
    fn unknown_fields_are_refused_at_every_level() {
        let schema = jsonschema::validator_for(&run_document()).unwrap();
        let good = json!({"project": "acme", "budgets": {"max_cost_cents": 5}, "stages": [{
            "name": "a", "verify": {"quorum": 2},
            "executor": {"kind": "swarm", "command": ["true"], "sandbox": {
                "profile": "harness", "overrides": {"memory": "1g"}}}}]});
        assert!(schema.is_valid(&good));
        let objects = [
            "",
            "/budgets",
            "/stages/0",
            "/stages/0/verify",
            "/stages/0/executor",
            "/stages/0/executor/sandbox",
            "/stages/0/executor/sandbox/overrides",
        ];
        for pointer in objects {
            let mut changed = good.clone();
            changed.pointer_mut(pointer).unwrap()["surprise"] = json!(1);
            assert!(!schema.is_valid(&changed), "{pointer}");
        }
    }
}
