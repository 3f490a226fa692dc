//! The OpenAPI document is what is committed, and tells of every route.

use pond_control::api::{Route, openapi_document};

use super::client::ask;
use super::world::{Set, World};

pub(crate) fn the_document_is_served_as_it_is_committed(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let served = ask(world.address, "GET", "/openapi.json", &[], b"");
    assert_eq!(served.text(), openapi_document());
    let committed = include_str!("../../../../docs/openapi.json");
    assert!(served.text() == committed, "docs/openapi.json differs: run `cargo xtask gen`");
    let document = served.json();
    assert_eq!(document["openapi"], "3.1.0");
    for route in Route::ALL {
        let operation = &document["paths"][route.path()][route.method_name().to_lowercase()];
        assert!(operation["responses"].is_object(), "{route:?}");
    }
    // Every reference leads somewhere.
    let text = served.text();
    for reference in text.split("\"$ref\": \"#").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(document.pointer(reference).is_some(), "{reference}");
    }
    assert_eq!(ask(world.address, "GET", "/healthz", &[], b"").text(), "ok\n");
    assert_eq!(ask(world.address, "GET", "/readyz", &[], b"").text(), "ready\n");
    let metrics = world.ask("GET", "/metrics", None);
    assert!(
        metrics.text().contains("pond_requests_total{method=\"GET\",path=\"/healthz\",status=\"200\"} 1")
    );
}
