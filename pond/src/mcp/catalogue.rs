//! The six tools as a client is told of them.
//!
//! Invariant: a tool's schema names exactly the fields that are read for it, and needs those that must be there.

use serde_json::{Value, json};

use super::tools::MOST_SECONDS;

/// The tools, as a client is told of them.
pub(super) fn tools() -> Value {
    let text = |words: &str| json!({"type": "string", "description": words});
    let sandbox = || text("The id of a sandbox.");
    let path = || text("An absolute path inside the sandbox.");
    let tool = |name: &str, words: &str, required: &[&str], properties: Value| {
        let schema = json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
        json!({"name": name, "description": words, "inputSchema": schema})
    };
    json!([
        tool(
            "create",
            "Make a sandbox that lasts, and wait until programs can be run in it.",
            &[],
            json!({
                "id": text("Its id: lower-case letters, digits, dashes; never used before. Made up without it."),
                "profile": text("How it is confined; untrusted-code-internet without it. Not together with document."),
                "document": {"type": ["object", "string"], "description": "A whole sandbox document (docs/sandboxes.md), as an object or as YAML."},
                "project": text("The project it belongs to, where the token is not of one."),
            })
        ),
        tool(
            "exec",
            "Run a program in a sandbox and wait for its end. No shell reads the command.",
            &["sandbox", "command"],
            json!({
                "sandbox": sandbox(),
                "command": {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "The program and its arguments, such as [\"sh\", \"-c\", \"ls\"]."},
                "env": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Variables besides the sandbox's own."},
                "cwd": path(),
                "timeout_seconds": {"type": "integer", "minimum": 1, "maximum": MOST_SECONDS, "description": "When it is ended; 120 without it."},
            })
        ),
        tool(
            "read_file",
            "Read a file of a sandbox: as text, or as base64 where it is not UTF-8.",
            &["sandbox", "path"],
            json!({
                "sandbox": sandbox(), "path": path(),
            })
        ),
        tool(
            "write_file",
            "Make or replace a file in a sandbox. Give text or base64.",
            &["sandbox", "path"],
            json!({
                "sandbox": sandbox(), "path": path(), "text": text("The content."), "base64": text("The content, in base64."),
            })
        ),
        tool(
            "list",
            "List sandboxes.",
            &[],
            json!({
                "cursor": text("`next` of the page before."), "label": text("Only those with this label: key or key=value."),
            })
        ),
        tool("delete", "Delete a sandbox and everything in it.", &["sandbox"], json!({"sandbox": sandbox()})),
    ])
}

#[cfg(test)]
mod tests {
    //! The schema names exactly what is read.
    use super::*;
    use crate::mcp::tools::{Create, Delete, Exec, List, ReadFile, WriteFile, arguments};

    #[test]
    fn the_schema_names_what_is_read() {
        let accepts = |name: &str, value: Value| match name {
            "create" => arguments::<Create>(value).map(drop),
            "exec" => arguments::<Exec>(value).map(drop),
            "read_file" => arguments::<ReadFile>(value).map(drop),
            "write_file" => arguments::<WriteFile>(value).map(drop),
            "list" => arguments::<List>(value).map(drop),
            "delete" => arguments::<Delete>(value).map(drop),
            other => panic!("{other} is read by nothing"),
        };
        let tools = tools();
        assert_eq!(tools.as_array().unwrap().len(), 6);
        for tool in tools.as_array().unwrap() {
            let name = tool["name"].as_str().unwrap();
            let schema = &tool["inputSchema"];
            let example = |property: &Value| match property["type"].as_str() {
                Some("array") => json!(["x"]),
                Some("integer") => json!(1),
                Some("object") => json!({}),
                _ => json!("x"),
            };
            let mut all = json!({});
            for (field, property) in schema["properties"].as_object().unwrap() {
                all[field] = example(property);
            }
            accepts(name, all.clone()).unwrap();
            for required in schema["required"].as_array().unwrap() {
                let mut less = all.clone();
                less.as_object_mut().unwrap().remove(required.as_str().unwrap());
                assert!(accepts(name, less).is_err(), "{name} without {required}");
            }
            all["surprise"] = json!(1);
            assert!(accepts(name, all).is_err(), "{name}");
        }
    }
}
