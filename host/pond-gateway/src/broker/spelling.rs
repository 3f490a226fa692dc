//! Field names that one reader takes for another's: some servers do not look at the case of a name (Go's reader folds it, the long
//! s and the Kelvin sign among the letters), so `Model` would be a second `model` to them and an unknown field to the rules.
//! Zone: host, pure; the names are the client's. Invariant: a name that folds to one that is judged is that name.

use super::inspect::InspectFault;
use super::json::Json;
use super::rules::parts;

/// What the rules of the APIs with such names ask a body for.
const JUDGED: [&str; 50] = [
    "audio",
    "background",
    "best_of",
    "container",
    "content_policy_fallbacks",
    "context_management",
    "context_window_fallbacks",
    "conversation",
    "deferred",
    "edits",
    "enable_code_interpreter",
    "enable_search",
    "extra_body",
    "fallbacks",
    "inference_geo",
    "input",
    "instructions",
    "kv_transfer_params",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "mcp_servers",
    "messages",
    "mock_testing_fallbacks",
    "modalities",
    "model",
    "models",
    "n",
    "plugins",
    "prediction",
    "preset",
    "previous_response_id",
    "prompt",
    "provider",
    "providerOptions",
    "route",
    "search_options",
    "search_parameters",
    "search_settings",
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

/// And what they ask the parts of a conversation for.
const JUDGED_WITHIN: [&str; 17] = [
    "audio",
    "audio_url",
    "document_url",
    "file_data",
    "file_id",
    "file_url",
    "id",
    "image_url",
    "input_audio",
    "input_video",
    "role",
    "source",
    "tools",
    "type",
    "url",
    "video",
    "video_url",
];

/// Refuses a body with such a name at its top, in its list of tools, in what it says about its stream or its context, or
/// anywhere in its conversation.
pub(super) fn check(body: &Json<'_>) -> Result<(), InspectFault> {
    let objects = [Some(body), body.get("stream_options"), body.get("context_management")];
    let mut conversation = ["messages", "system", "input"].into_iter().filter_map(|key| body.get(key));
    let is_misspelled = objects.into_iter().flatten().any(has_other_spelling)
        || has_misspelled_tools(body)
        || conversation.any(is_misspelled);
    match is_misspelled {
        true => Err(InspectFault::Field("a field that differs from a known one in its case")),
        false => Ok(()),
    }
}

fn has_other_spelling(object: &Json<'_>) -> bool {
    object.entries().iter().any(|(name, _)| is_other_spelling(name, &JUDGED))
}

/// A tool may be a group of them.
fn has_misspelled_tools(holder: &Json<'_>) -> bool {
    let tools = holder.get("tools").map_or(&[][..], Json::items);
    tools.iter().any(|tool| has_other_spelling(tool) || has_misspelled_tools(tool))
}

fn is_misspelled(part: &Json<'_>) -> bool {
    // The variables of a command are anybody's, and capitals are their custom.
    let variables = part.get("env");
    part.entries().iter().any(|(name, _)| is_other_spelling(name, &JUDGED_WITHIN))
        || parts(part)
            .any(|part| !variables.is_some_and(|own| std::ptr::eq(own, part)) && is_misspelled(part))
}

fn is_other_spelling(name: &str, judged: &[&str]) -> bool {
    let folded = name.to_uppercase().to_lowercase();
    judged.iter().any(|known| *known != name && known.eq_ignore_ascii_case(&folded))
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
            r#"{"tools":[{"type":"namespace","tools":[{"type":"function","Type":"mcp"}]}]}"#,
            r#"{"stream_options":{"Include_Usage":false}}"#,
            r#"{"context_management":{"Edits":[]}}"#,
            r#"{"messages":[{"content":[{"type":"image_url","Image_URL":{"url":"https://evil"}}]}]}"#,
            r#"{"messages":[{"content":[{"image_url":{"url":"data:","URL":"https://evil"}}]}]}"#,
            r#"{"messages":[{"content":[{"type":"tool_result","content":[{"Source":{}}]}]}]}"#,
            r#"{"input":[{"type":"message","Type":"item_reference"}]}"#,
            r#"{"system":[{"Type":"image"}]}"#,
        ] {
            let fault = check(&Json::parse(body.as_bytes()).unwrap()).map_err(|fault| fault.code());
            assert_eq!(fault, Err("body_field"), "{body}");
        }
        for body in [
            r#"{"model":"m","Temperature":1,"topP":1,"N_best":2}"#,
            r#"{"messages":[{"content":[{"type":"tool_use","input":{"Model":"T","model":"t"}}]}]}"#,
            r#"{"input":[{"type":"local_shell_call","action":{"type":"exec","env":{"URL":"u","ID":"i"}}}]}"#,
            r#"{"tools":[{"type":"function","function":{"parameters":{"properties":{"Type":{}}}}}]}"#,
        ] {
            assert_eq!(check(&Json::parse(body.as_bytes()).unwrap()), Ok(()), "{body}");
        }
    }
}
