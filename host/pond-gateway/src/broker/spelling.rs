//! Field names that one reader takes for another's: some servers do not look at the case of a name (Go's reader folds it, the long
//! s and the Kelvin sign among the letters), so `Model` would be a second `model` to them and an unknown field to the rules.
//! Zone: host, pure; the names are the client's. Invariant: a name that folds to one that is judged is that name.

use super::inspect::InspectFault;
use super::json::Json;

/// What the rules of the APIs with such names ask a body for.
const JUDGED: [&str; 32] = [
    "audio",
    "background",
    "best_of",
    "container",
    "conversation",
    "inference_geo",
    "input",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "mcp_servers",
    "messages",
    "modalities",
    "model",
    "models",
    "n",
    "plugins",
    "prediction",
    "previous_response_id",
    "prompt",
    "route",
    "service_tier",
    "speed",
    "store",
    "stream",
    "stream_options",
    "system",
    "thinking",
    "tools",
    "type",
    "include_usage",
    "web_search_options",
];

/// Refuses a body with such a name at its top, in its list of tools or in what it says about its stream.
pub(super) fn check(body: &Json<'_>) -> Result<(), InspectFault> {
    let tools = body.get("tools").map_or(&[][..], Json::items);
    let places = [Some(body), body.get("stream_options")].into_iter().flatten().chain(tools);
    match places.flat_map(Json::entries).any(|(name, _)| is_other_spelling(name)) {
        true => Err(InspectFault::Field("a field that differs from a known one in its case")),
        false => Ok(()),
    }
}

fn is_other_spelling(name: &str) -> bool {
    let folded = name.to_uppercase().to_lowercase();
    folded != name && JUDGED.contains(&folded.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c106_a_name_in_other_letters_is_refused_where_it_could_be_read_as_a_judged_one() {
        for body in [
            r#"{"model":"cheap","Model":"dear"}"#,
            r#"{"MAX_TOKENS":9}"#,
            "{\"\u{17f}tream\":true}",
            "{\"max_to\u{212a}ens\":9}",
            r#"{"tools":[{"type":"function","Type":"mcp"}]}"#,
            r#"{"stream_options":{"Include_Usage":false}}"#,
        ] {
            let fault = check(&Json::parse(body.as_bytes()).unwrap()).map_err(|fault| fault.code());
            assert_eq!(fault, Err("body_field"), "{body}");
        }
        for body in [
            r#"{"model":"m","Temperature":1,"topP":1,"N_best":2}"#,
            r#"{"messages":[{"content":[{"type":"tool_use","input":{"Model":"T","model":"t"}}]}]}"#,
            r#"{"tools":[{"type":"function","function":{"parameters":{"properties":{"Type":{}}}}}]}"#,
        ] {
            assert_eq!(check(&Json::parse(body.as_bytes()).unwrap()), Ok(()), "{body}");
        }
    }
}
