//! The provider as a way out (cases 106, 109 to 111): what of a body would have it search, fetch, keep or charge otherwise, and
//! what of the client's own passes.

use super::requests::{ANSWER, GENERATE, quiet, refused, with_key};
use super::world::*;

/// Which model, where, one field of the body, and the code of its refusal.
const WAYS_OUT: &[(usize, &str, &str, &str)] = &[
    (0, "/v1/messages", r#""tools":[{"type":"web_search_20250305"}]"#, "provider_egress"),
    (0, "/v1/messages", r#""tools":[{"type":"web_fetch_20250910"}]"#, "provider_egress"),
    (0, "/v1/messages", r#""tools":[{"type":"code_execution_20250825"}]"#, "provider_egress"),
    (0, "/v1/messages", r#""tools":[{"type":7}]"#, "provider_egress"),
    (0, "/v1/messages", r#""models":["dear"]"#, "unpriced_option"),
    (0, "/v1/messages", r#""fallbacks":["dear"]"#, "unpriced_option"),
    (0, "/v1/messages", r#""plugins":[{"id":"web"}]"#, "provider_egress"),
    (0, "/v1/messages", r#""tools":[{"type":"bash_code_execution_20250825"}]"#, "provider_egress"),
    (0, "/v1/messages", r#""tools":[{"type":"memory_"}]"#, "provider_egress"),
    (
        0,
        "/v1/messages",
        r#""context_management":{"edits":[{"type":"clear_thinking_20251015"},{"type":"compact_20260112"}]}"#,
        "unpriced_option",
    ),
    (0, "/v1/messages", r#""mcp_servers":[{"url":"https://evil"}]"#, "provider_egress"),
    (0, "/v1/messages", r#""container":"c1""#, "provider_storage"),
    (
        0,
        "/v1/messages",
        r#""messages":[{"content":[{"type":"image","source":{"type":"url","url":"https://evil/?d"}}]}]"#,
        "provider_egress",
    ),
    (
        0,
        "/v1/messages",
        r#""messages":[{"content":[{"type":"tool_result","content":[{"type":"document","source":{"type":"file","file_id":"f"}}]}]}]"#,
        "provider_egress",
    ),
    (
        0,
        "/v1/messages",
        r#""messages":[{"content":[{"type":"container_upload","file_id":"f"}]}]"#,
        "provider_storage",
    ),
    (
        0,
        "/v1/messages",
        r#""messages":[{"content":[{"type":"code_execution_output","file_id":"f"}]}]"#,
        "provider_storage",
    ),
    (0, "/v1/messages", r#""service_tier":"priority""#, "unpriced_option"),
    (0, "/v1/messages", r#""speed":"fast""#, "unpriced_option"),
    (0, "/v1/messages", r#""inference_geo":"us""#, "unpriced_option"),
    (1, "/v1/responses", r#""tools":[{"type":"web_search"}]"#, "provider_egress"),
    (1, "/v1/responses", r#""tools":[{"type":"mcp","server_url":"https://evil"}]"#, "provider_egress"),
    (1, "/v1/responses", r#""tools":[{"type":"code_interpreter"}]"#, "provider_egress"),
    (1, "/v1/responses", r#""tools":[{"type":"file_search"}]"#, "provider_egress"),
    (1, "/v1/responses", r#""tools":[{"type":"computer_use_preview"}]"#, "provider_egress"),
    (1, "/v1/responses", r#""tools":[{}]"#, "provider_egress"),
    (
        1,
        "/v1/responses",
        r#""tools":[{"type":"namespace","tools":[{"type":"function"},{"type":"web_search"}]}]"#,
        "provider_egress",
    ),
    (
        1,
        "/v1/responses",
        r#""input":[{"type":"additional_tools","role":"developer","tools":[{"type":"web_search"}]}]"#,
        "provider_egress",
    ),
    (
        1,
        "/v1/responses",
        r#""input":[{"type":"additional_tools","tools":[{"type":"namespace","tools":[{"type":"mcp"}]}]}]"#,
        "provider_egress",
    ),
    (
        1,
        "/v1/responses",
        r#""input":[{"type":"tool_search_output","tools":[{"type":"code_interpreter"}]}]"#,
        "provider_egress",
    ),
    (
        1,
        "/v1/responses",
        r#""input":[{"content":[{"type":"input_image","image_url":"https://evil"}]}]"#,
        "provider_egress",
    ),
    (
        1,
        "/v1/responses",
        r#""input":[{"content":[{"type":"input_file","file_url":"https://evil"}]}]"#,
        "provider_egress",
    ),
    (1, "/v1/responses", r#""input":[{"type":"item_reference","id":"x"}]"#, "provider_storage"),
    (1, "/v1/responses", r#""input":[{"id":"msg_x"}]"#, "provider_storage"),
    (
        1,
        "/v1/responses",
        r#""input":[{"role":"user","content":"x"},{"type":null,"id":"m"}]"#,
        "provider_storage",
    ),
    (1, "/v1/responses", r#""input":[{"type":7,"role":null,"id":"m"}]"#, "provider_storage"),
    (1, "/v1/responses", r#""input":[{"type":"message","id":"m"}]"#, "provider_storage"),
    (
        1,
        "/v1/responses",
        r#""input":[{"type":"message","role":"user","id":"m","content":[]}]"#,
        "provider_storage",
    ),
    (1, "/v1/responses", r#""input":[{"type":"reasoning","id":"r","summary":["s"]}]"#, "provider_storage"),
    (1, "/v1/responses", r#""input":[{"type":"image_generation_call","id":"i"}]"#, "provider_storage"),
    (1, "/v1/responses", r#""instructions":[{"type":"item_reference","id":"x"}]"#, "body_field"),
    (1, "/v1/responses", r#""context_management":[{"type":"compaction"}]"#, "unpriced_option"),
    (1, "/v1/responses", r#""models":["other"]"#, "unpriced_option"),
    (1, "/v1/responses", r#""fallbacks":["other"]"#, "unpriced_option"),
    (1, "/v1/responses", r#""modalities":["image"]"#, "unpriced_option"),
    (1, "/v1/responses", r#""plugins":[{"id":"web"}]"#, "provider_egress"),
    (1, "/v1/responses", r#""enable_search":true"#, "provider_egress"),
    (
        1,
        "/v1/responses",
        r#""input":[{"content":[{"type":"document_url","document_url":"https://evil"}]}]"#,
        "provider_egress",
    ),
    (1, "/v1/responses", r#""background":true"#, "provider_storage"),
    (1, "/v1/responses", r#""store":true"#, "provider_storage"),
    (1, "/v1/responses", r#""previous_response_id":"r""#, "provider_storage"),
    (1, "/v1/responses", r#""conversation":"c""#, "provider_storage"),
    (1, "/v1/responses", r#""prompt":{"id":"p"}"#, "provider_storage"),
    (1, "/v1/responses", r#""service_tier":"priority""#, "unpriced_option"),
    (
        1,
        "/v1/chat/completions",
        r#""messages":[{"content":[{"type":"image_url","image_url":{"url":"https://evil"}}]}]"#,
        "provider_egress",
    ),
    (1, "/v1/chat/completions", r#""web_search_options":{}"#, "provider_egress"),
    (1, "/v1/chat/completions", r#""store":true"#, "provider_storage"),
    (1, "/v1/chat/completions", r#""models":["other"]"#, "unpriced_option"),
    (1, "/v1/chat/completions", r#""route":"fallback""#, "unpriced_option"),
    (1, "/v1/chat/completions", r#""provider":{"order":["dear"]}"#, "unpriced_option"),
    (1, "/v1/chat/completions", r#""preset":"p""#, "unpriced_option"),
    (1, "/v1/chat/completions", r#""prediction":{"type":"content"}"#, "unpriced_option"),
    (1, "/v1/chat/completions", r#""audio":{"voice":"a"}"#, "unpriced_option"),
    (1, "/v1/chat/completions", r#""modalities":["text","audio"]"#, "unpriced_option"),
    (1, "/v1/chat/completions", r#""service_tier":"flex""#, "unpriced_option"),
    (1, "/v1/chat/completions", r#""plugins":[{"id":"web"}]"#, "provider_egress"),
    (1, "/v1/chat/completions", r#""search_parameters":{"mode":"on"}"#, "provider_egress"),
    (1, "/v1/chat/completions", r#""enable_search":true"#, "provider_egress"),
    (1, "/v1/chat/completions", r#""enable_code_interpreter":true"#, "provider_egress"),
    (1, "/v1/chat/completions", r#""search_settings":{"x":1}"#, "provider_egress"),
    (1, "/v1/chat/completions", r#""deferred":true"#, "provider_storage"),
    (1, "/v1/chat/completions", r#""fallbacks":["dear"]"#, "unpriced_option"),
    (1, "/v1/chat/completions", r#""mock_testing_fallbacks":true"#, "unpriced_option"),
    (1, "/v1/chat/completions", r#""extra_body":{"models":["dear"]}"#, "unpriced_option"),
    (1, "/v1/chat/completions", r#""providerOptions":{}"#, "unpriced_option"),
    (1, "/v1/chat/completions", r#""provideroptions":{}"#, "body_field"),
    (
        1,
        "/v1/chat/completions",
        r#""messages":[{"role":"assistant","audio":{"id":"a"}}]"#,
        "provider_storage",
    ),
    (
        1,
        "/v1/chat/completions",
        r#""messages":[{"content":[{"type":"document_url","document_url":"https://e"}]}]"#,
        "provider_egress",
    ),
    (
        1,
        "/v1/chat/completions",
        r#""messages":[{"content":[{"type":"input_audio","input_audio":{"data":"https://e"}}]}]"#,
        "provider_egress",
    ),
    (
        1,
        "/v1/chat/completions",
        r#""messages":[{"content":[{"type":"video","video":["https://e"]}]}]"#,
        "provider_egress",
    ),
    (
        1,
        "/v1/chat/completions",
        r#""messages":[{"content":[{"type":"image","source":{"url":"https://e"}}]}]"#,
        "provider_egress",
    ),
    (
        1,
        "/v1/chat/completions",
        r#""messages":[{"content":[{"type":"file","file":{"file_uri":"https://e"}}]}]"#,
        "provider_egress",
    ),
    (1, "/v1/chat/completions", r#""tools":[{"type":"web_search"}]"#, "provider_egress"),
    (1, "/v1/chat/completions", r#""tools":[{}]"#, "provider_egress"),
    (
        1,
        "/v1/chat/completions",
        r#""messages":[{"content":[{"video_url":{"url":"http://e"}}]}]"#,
        "provider_egress",
    ),
    (1, "/v1/chat/completions", r#""messages":[{"content":[{"audio_url":"http://e"}]}]"#, "provider_egress"),
    (1, "/v1/chat/completions", r#""messages":[{"content":[{"image_url":["data:x"]}]}]"#, "provider_egress"),
    (1, "/v1/chat/completions", r#""messages":[{"content":[{"file":{"file_id":"f"}}]}]"#, "provider_storage"),
    (
        1,
        "/v1/chat/completions",
        r#""messages":[{"content":[{"type":"file","file":{"file_data":"https://evil/?d"}}]}]"#,
        "provider_egress",
    ),
    (
        2,
        "/v1beta/models/gemini-2.5-pro:generateContent",
        r#""tools":[{"googleSearch":{}}]"#,
        "provider_egress",
    ),
    (2, "/v1beta/models/gemini-2.5-pro:generateContent", r#""tools":[{"urlContext":{}}]"#, "provider_egress"),
    (2, "/v1beta/models/gemini-2.5-pro:generateContent", r#""tools":[{"code_execution":{}}]"#, "body_field"),
    (2, "/v1beta/models/gemini-2.5-pro:generateContent", r#""generation_config":{}"#, "body_field"),
    (
        2,
        "/v1beta/models/gemini-2.5-pro:generateContent",
        r#""contents":[{"parts":[{"fileData":{"fileUri":"https://evil"}}]}]"#,
        "provider_egress",
    ),
    (
        2,
        "/v1beta/models/gemini-2.5-pro:generateContent",
        r#""system_instruction":{"parts":[{"fileData":{"fileUri":"https://evil"}}]}"#,
        "provider_egress",
    ),
    (2, "/v1beta/models/gemini-2.5-pro:generateContent", r#""cachedContent":"c""#, "provider_storage"),
    (
        2,
        GENERATE,
        r#""contents":[{"parts":[{"functionResponse":{"response":{},"parts":[{"fileData":{"fileUri":"u"}}]}}]}]"#,
        "provider_egress",
    ),
    (2, GENERATE, r#""contents":[{"parts":[{"function_call":{"file_data":{}}}]}]"#, "provider_egress"),
    (2, GENERATE, r#""generationConfig":{"responseModalities":["TEXT","AUDIO"]}"#, "unpriced_option"),
    (2, GENERATE, r#""systemInstruction":{"parts":[{"fileData":{"fileUri":"u"}}]}"#, "provider_egress"),
    (2, GENERATE, r#""serviceTier":"priority""#, "unpriced_option"),
    (
        2,
        GENERATE,
        r#""contents":[{"parts":[{"inlineData":{"mimeType":"Audio/mp3","data":"aGk="}}]}]"#,
        "unpriced_option",
    ),
    (
        2,
        GENERATE,
        r#""contents":[{"parts":[{"inline_data":{"mime_type":"video/mp4","data":"aGk="}}]}]"#,
        "unpriced_option",
    ),
    (2, GENERATE, r#""serviceTier":{"0":"flex"}"#, "unpriced_option"),
    (2, GENERATE, r#""generationConfig":{"serviceTier":"flex"}"#, "unpriced_option"),
];

#[tokio::test]
async fn c109_c110_c111_the_provider_is_no_way_out() {
    let world = quiet().await;
    for (at, path, field, code) in WAYS_OUT {
        let body = match at {
            0 => format!("{{\"model\":\"claude-sonnet-4-5\",\"max_tokens\":9,{field}}}"),
            1 => format!("{{\"model\":\"gpt-5\",{field}}}"),
            _ => format!("{{{field}}}"),
        };
        let status = if *code == "body_field" { 400 } else { 403 };
        refused(&world, &with_key(path, *at, &body), status, code).await;
    }
}

/// Values a provider could read as a list of one, or as the object they should be.
const MISSHAPEN: &[(usize, &str, &str)] = &[
    (0, "/v1/messages", r#""tools":{"type":"web_search_20250305"}"#),
    (0, "/v1/messages", r#""tools":[[{"type":"web_search_20250305"}]]"#),
    (1, "/v1/responses", r#""tools":{"type":"web_search"}"#),
    (1, "/v1/responses", r#""tools":[{"type":"namespace","tools":{"type":"web_search"}}]"#),
    (1, "/v1/responses", r#""input":[{"type":"additional_tools","tools":{"type":"web_search"}}]"#),
    (1, "/v1/responses", r#""input":{"id":"msg_x"}"#),
    (0, "/v1/messages", r#""context_management":[{"type":"compact_20260112"}]"#),
    (0, "/v1/messages", r#""context_management":{"edits":{"type":"compact_20260112"}}"#),
    (1, "/v1/responses", r#""store":null"#),
    (1, "/v1/chat/completions", r#""enable_search":"yes""#),
    (1, "/v1/chat/completions", r#""tools":"web_search""#),
    (1, "/v1/chat/completions", r#""modalities":"audio""#),
    (1, "/v1/chat/completions", r#""modalities":{"0":"audio"}"#),
    (2, "/v1beta/models/gemini-2.5-pro:countTokens", r#""generateContentRequest":{"contents":[]}"#),
    (2, GENERATE, r#""model":"models/gemini-2.5-pro""#),
    (2, GENERATE, r#""model":null"#),
    (2, GENERATE, r#""tools":{"urlContext":{}}"#),
    (2, GENERATE, r#""tools":"urlContext""#),
    (2, GENERATE, r#""tools":[[{"urlContext":{}}]]"#),
    (2, GENERATE, r#""generationConfig":{"responseModalities":"AUDIO"}"#),
    (2, GENERATE, r#""generationConfig":[{"responseModalities":["AUDIO"]}]"#),
];
#[tokio::test]
async fn c106_c109_what_is_not_a_list_is_not_an_empty_one() {
    let world = quiet().await;
    for (at, path, field) in MISSHAPEN {
        let body = match at {
            0 => format!("{{\"model\":\"claude-sonnet-4-5\",\"max_tokens\":9,{field}}}"),
            1 => format!("{{\"model\":\"gpt-5\",{field}}}"),
            _ => format!("{{{field}}}"),
        };
        refused(&world, &with_key(path, *at, &body), 400, "body_field").await;
    }
    let source = r#"{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[{"source":[{"type":"url"}]}]}"#;
    refused(&world, &with_key("/v1/messages", 0, source), 403, "provider_egress").await;
}

#[tokio::test]
async fn c109_the_client_s_own_tools_and_inline_pictures_pass() {
    let world = quiet().await;
    let body = r#"{"model":"claude-sonnet-4-5","max_tokens":9,"tools":[{"name":"a","input_schema":{}},
        {"type":"custom","name":"b"},{"type":"bash_20250124","name":"bash"}],"mcp_servers":[],
        "context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]},"messages":[{"content":[
        {"type":"image","source":{"type":"base64","data":"aGk="}},
        {"type":"tool_use","input":{"source":{"type":"url"}}}]}]}"#;
    let answer = world.ask(0, "/v1/messages", body).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(world.seen()[0].text(), body);
    let body = r#"{"contents":[],"system_instruction":{"parts":[{"text":"a"}]},"generationConfig":{"maxOutputTokens":9}}"#;
    assert!(world.ask(2, GENERATE, body).await.starts_with("HTTP/1.1 200 "), "as LiteLLM spells it");
    let body = r#"{"serviceTier":"standard","contents":[{"parts":[{"functionResponse":{"response":{"fileData":"x"}}},
        {"functionCall":{"args":{"fileData":1}}}]}]}"#;
    assert!(world.ask(2, GENERATE, body).await.starts_with("HTTP/1.1 200 "), "a function's own fields");
    let body = r#"{"model":"gpt-5","instructions":"be brief","input":[{"role":"user","id":"a","content":"see https://a"},
        {"type":"reasoning","id":"b","summary":[],"encrypted_content":"c"},
        {"type":"function_call","id":"d","call_id":"e","name":"f","arguments":"{\"url\":\"https://a\"}"},
        {"type":"local_shell_call","id":"g","action":{"type":"exec","command":["curl","https://a"]}},
        {"type":"message","id":"h","role":"assistant","content":[{"type":"output_text","text":"at https://a"}]}]}"#;
    assert!(
        world.ask(1, "/v1/responses", body).await.starts_with("HTTP/1.1 200 "),
        "items that bring what they mean"
    );
}

#[tokio::test]
async fn c109_provider_tools_open_the_provider_s_tools_and_not_its_files() {
    let mut order = order(pond_policy::model::Microcents::from_cents(5000));
    order.models[0].provider_tools = true;
    let open = World::with(order, |_| json_ok(ANSWER)).await;
    let message = |rest: &str| format!(r#"{{"model":"claude-sonnet-4-5","max_tokens":9,{rest}}}"#);
    for block in [
        r#"{"type":"container_upload","file_id":"f"}"#,
        r#"{"type":"document","source":{"type":"file","file_id":"f"}}"#,
    ] {
        let body = message(&format!(r#""messages":[{{"content":[{block}]}}]"#));
        refused(&open, &with_key("/v1/messages", 0, &body), 403, "provider_storage").await;
    }
    for field in [
        r#""tools":[{"type":"web_search_20250305"}]"#,
        r#""messages":[{"content":[{"type":"code_execution_output","file_id":"made_by_it"}]}]"#,
    ] {
        let answer = open.ask(0, "/v1/messages", &message(field)).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{field}: {answer}");
    }
}

/// As Codex sends them: groups of functions, in the body for some models and in an item of the input for others.
#[tokio::test]
async fn c109_groups_of_the_client_s_tools_pass() {
    let world = quiet().await;
    let group = r#"{"type":"namespace","name":"agents","tools":[{"type":"function","name":"close",
        "parameters":{"properties":{"image_url":{"type":"string"}}}},{"type":"custom","name":"exec"}]}"#;
    for field in [
        format!(r#""tools":[{{"type":"function","name":"a"}},{group}]"#),
        format!(r#""input":[{{"type":"additional_tools","role":"developer","tools":[{group}]}}]"#),
    ] {
        let body = format!(r#"{{"model":"gpt-5","max_output_tokens":9,"store":false,{field}}}"#);
        let answer = world.ask(1, "/v1/responses", &body).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{field}: {answer}");
    }
}
