//! The rules of each API about a body: which fields price it, which tools run on the client's side, and which parts would
//! have the provider fetch, keep or run something.

use pond_policy::model::Api;

use super::inspect::{Edit, Found, InspectFault, LimitField, OutputLimit};
use super::json::Json;
use super::media;
use super::route::{Call, Route};

/// Tools of Anthropic's own that the client runs; a type is one of these followed by a date.
const ANTHROPIC_CLIENT_TOOLS: [&str; 4] = ["bash_", "text_editor_", "computer_", "memory_"];
const RESPONSES_CLIENT_TOOLS: [&str; 4] = ["function", "custom", "local_shell", "apply_patch"];
const CHAT_CLIENT_TOOLS: [&str; 2] = ["function", "custom"];
const OTHER_INSTRUCTION: &str = "system_instruction";
/// Service tiers that cost the list price, by the field that names them.
const LIST_PRICE_TIERS: [&str; 3] = ["auto", "default", "standard_only"];
const GEMINI_LIST_PRICE_TIERS: [&str; 1] = ["standard"];
/// Fields with which a router, or a proxy before several providers, takes another model or another price.
const OTHER_PRICES: [&str; 12] = [
    "audio",
    "content_policy_fallbacks",
    "context_window_fallbacks",
    "extra_body",
    "fallbacks",
    "mock_testing_fallbacks",
    "models",
    "prediction",
    "preset",
    "provider",
    "providerOptions",
    "route",
];
/// And those with which servers search, fetch and run things of their own accord.
const OWN_ACCORD: [&str; 6] = [
    "kv_transfer_params",
    "plugins",
    "search_options",
    "search_parameters",
    "search_settings",
    "web_search_options",
];
const OWN_ACCORD_SWITCHES: [&str; 2] = ["enable_code_interpreter", "enable_search"];
/// What an item of a Responses input brings with it; one with an id and none of these is the provider's own to look up.
const BROUGHT: [&str; 12] = [
    "action",
    "arguments",
    "call_id",
    "code",
    "content",
    "encrypted_content",
    "input",
    "operation",
    "output",
    "queries",
    "result",
    "tools",
];

pub(super) fn anthropic(tree: &Json<'_>, provider_tools: bool) -> Result<Found, InspectFault> {
    check_servers(tree, provider_tools)?;
    if tree.get("speed").is_some_and(|speed| speed.text() != Some("standard")) {
        return Err(InspectFault::Unpriced("speed"));
    }
    refuse_any(tree, &["inference_geo"], InspectFault::Unpriced)?;
    refuse_any(tree, &["container"], InspectFault::Stored)?;
    check_edits(tree)?;
    if !provider_tools {
        let client_side = |kind: &str| {
            kind == "custom" || ANTHROPIC_CLIENT_TOOLS.iter().any(|prefix| is_dated(kind, prefix))
        };
        check_tools(tree, true, client_side)?;
        refuse_any(tree, &["mcp_servers"], InspectFault::ProviderEgress)?;
    }
    for part in ["messages", "system"].into_iter().filter_map(|key| tree.get(key)) {
        check_blocks(part, provider_tools)?;
    }
    let thinks = |thinking: &Json<'_>| thinking.get("type").and_then(Json::text) != Some("disabled");
    Ok(Found {
        model: required_text(tree, "model")?,
        stream: switch(tree, "stream")?,
        output: limit(tree, "max_tokens", OutputLimit::Open(LimitField::MaxTokens))?,
        answers: 1,
        hides_output: tree.get("thinking").is_some_and(thinks),
        edits: Vec::new(),
    })
}

pub(super) fn responses(tree: &Json<'_>, provider_tools: bool) -> Result<Found, InspectFault> {
    check_servers(tree, provider_tools)?;
    // To sum the context up is a call of its own, and nothing less is to be had.
    refuse_any(tree, &["context_management"], InspectFault::Unpriced)?;
    if tree.get("instructions").is_some_and(|said| said.text().is_none()) {
        return Err(InspectFault::Field("instructions"));
    }
    // What the provider kept from before has no size here, and so no bound on its price.
    refuse_any(tree, &["previous_response_id", "conversation", "prompt"], InspectFault::Stored)?;
    if switch(tree, "background")? {
        return Err(InspectFault::Stored("background"));
    }
    if switch(tree, "store")? {
        return Err(InspectFault::Stored("store"));
    }
    if !provider_tools {
        check_grouped_tools(tree)?;
    }
    if let Some(input) = tree.get("input") {
        check_items(input)?;
        check_parts(input, provider_tools)?;
    }
    // Null means the provider's default, and that is to keep.
    let edits = match (has_key(tree, "store"), tree.get("store")) {
        (false, _) => vec![Edit::StoreNothing],
        (true, None) => return Err(InspectFault::Field("store")),
        (true, Some(_)) => Vec::new(),
    };
    let open = OutputLimit::Open(LimitField::MaxOutputTokens);
    Ok(Found {
        model: required_text(tree, "model")?,
        stream: switch(tree, "stream")?,
        output: limit(tree, "max_output_tokens", open)?,
        answers: 1,
        hides_output: true,
        edits,
    })
}

pub(super) fn chat(tree: &Json<'_>, api: Api, provider_tools: bool) -> Result<Found, InspectFault> {
    check_servers(tree, provider_tools)?;
    for kept in ["deferred", "store"] {
        if switch(tree, kept)? {
            return Err(InspectFault::Stored(kept));
        }
    }
    if !provider_tools {
        check_tools(tree, false, |kind| CHAT_CLIENT_TOOLS.contains(&kind))?;
    }
    if let Some(messages) = tree.get("messages") {
        check_parts(messages, provider_tools)?;
    }
    let stream = switch(tree, "stream")?;
    let open = OutputLimit::Open(chat_limit_field(api));
    let output = match (limit(tree, "max_completion_tokens", open)?, limit(tree, "max_tokens", open)?) {
        (OutputLimit::Given(newer), OutputLimit::Given(older)) => OutputLimit::Given(newer.max(older)),
        (OutputLimit::Given(given), _) | (_, OutputLimit::Given(given)) => OutputLimit::Given(given),
        (OutputLimit::Unlimited, _) | (_, OutputLimit::Unlimited) => OutputLimit::Unlimited,
        (OutputLimit::Open(field), OutputLimit::Open(_)) => OutputLimit::Open(field),
    };
    let (n, best_of) = (whole(tree, "n")?.unwrap_or(1), whole(tree, "best_of")?.unwrap_or(1));
    Ok(Found {
        model: required_text(tree, "model")?,
        stream,
        output,
        answers: n.max(best_of).max(1),
        hides_output: true,
        edits: usage_edit(tree, stream)?.into_iter().collect(),
    })
}

pub(super) fn gemini(tree: &Json<'_>, route: &Route, provider_tools: bool) -> Result<Found, InspectFault> {
    // The API reads both spellings of a field; only one of them is judged, so the other may not be there. Of the one field
    // whose other spelling is in use (by LiteLLM) both are.
    let snake =
        |(key, _): &(std::borrow::Cow<'_, str>, Json<'_>)| key.contains('_') && key != OTHER_INSTRUCTION;
    let config = object(tree, "generationConfig")?;
    let tools = objects(tree, "tools")?;
    let places = [Some(tree), config].into_iter().flatten().chain(tools);
    if places.flat_map(Json::entries).any(snake) {
        return Err(InspectFault::Field("a field spelled with underscores"));
    }
    // The path names the model; a second one would be in the question about the prompt's size twice.
    if has_key(tree, "model") {
        return Err(InspectFault::Field("model"));
    }
    refuse_any(tree, &["cachedContent"], InspectFault::Stored)?;
    for place in [Some(tree), config].into_iter().flatten() {
        check_tier(place, "serviceTier", &GEMINI_LIST_PRICE_TIERS)?;
    }
    if route.call == Call::CountGenerate && tree.get("generateContentRequest").is_some() {
        return Err(InspectFault::Field("generateContentRequest"));
    }
    let speaks = |kind: &Json<'_>| !kind.text().is_some_and(|kind| kind.eq_ignore_ascii_case("text"));
    let kinds = config.map_or(Ok(&[][..]), |config| list(config, "responseModalities"))?;
    if kinds.iter().any(speaks) {
        return Err(InspectFault::Unpriced("responseModalities"));
    }
    if !provider_tools {
        if tools.iter().flat_map(Json::entries).any(|(key, _)| key != "functionDeclarations") {
            return Err(InspectFault::ProviderEgress("tools"));
        }
        for part in
            ["contents", "systemInstruction", OTHER_INSTRUCTION].into_iter().filter_map(|key| tree.get(key))
        {
            check_file_data(part)?;
        }
    }
    // Sound costs some models three times what text does, and there is one price for input here.
    if media::holds_sound(tree) {
        return Err(InspectFault::Unpriced("inlineData"));
    }
    let given = config.map_or(Ok(None), |config| whole(config, "maxOutputTokens"))?;
    if given == Some(0) {
        return Err(InspectFault::Field("maxOutputTokens"));
    }
    let open = match config {
        Some(config) if has_key(config, "maxOutputTokens") => OutputLimit::Unlimited,
        Some(_) => OutputLimit::Open(LimitField::InGenerationConfig),
        None if has_key(tree, "generationConfig") => OutputLimit::Unlimited,
        None => OutputLimit::Open(LimitField::GenerationConfig),
    };
    let candidates = config.map_or(Ok(None), |config| whole(config, "candidateCount"))?;
    Ok(Found {
        model: route.model.clone().ok_or(InspectFault::Field("model"))?,
        stream: route.call == (Call::Generate { stream: true }),
        output: given.map_or(open, OutputLimit::Given),
        answers: candidates.unwrap_or(1).max(1),
        hides_output: true,
        edits: Vec::new(),
    })
}

const fn chat_limit_field(api: Api) -> LimitField {
    match api {
        Api::Openai => LimitField::MaxCompletionTokens,
        Api::OpenaiChat | Api::Anthropic | Api::Gemini => LimitField::MaxTokens,
    }
}

/// A chat stream reports its usage only when asked.
fn usage_edit(tree: &Json<'_>, stream: bool) -> Result<Option<Edit>, InspectFault> {
    let asked = match tree.get("stream_options") {
        Some(options) => switch(options, "include_usage")?,
        None => false,
    };
    Ok(match (stream, asked, has_key(tree, "stream_options")) {
        (false, _, _) | (true, true, _) => None,
        (true, false, true) => Some(Edit::ChangeStreamOptions),
        (true, false, false) => Some(Edit::AddStreamOptions),
    })
}

/// What is the same for all whose fields are spelled alike: the provider's own servers, and those that speak its language.
fn check_servers(tree: &Json<'_>, provider_tools: bool) -> Result<(), InspectFault> {
    check_tier(tree, "service_tier", &LIST_PRICE_TIERS)?;
    refuse_any(tree, &OTHER_PRICES, InspectFault::Unpriced)?;
    if list(tree, "modalities")?.iter().any(|kind| kind.text() != Some("text")) {
        return Err(InspectFault::Unpriced("modalities"));
    }
    if provider_tools {
        return Ok(());
    }
    refuse_any(tree, &OWN_ACCORD, InspectFault::ProviderEgress)?;
    OWN_ACCORD_SWITCHES.into_iter().try_for_each(|key| match switch(tree, key)? {
        true => Err(InspectFault::ProviderEgress(key)),
        false => Ok(()),
    })
}

fn check_tier(tree: &Json<'_>, field: &'static str, list_price: &[&str]) -> Result<(), InspectFault> {
    match tree.get(field) {
        None => Ok(()),
        Some(Json::Text(tier)) if list_price.contains(&&**tier) => Ok(()),
        Some(_) => Err(InspectFault::Unpriced(field)),
    }
}

fn check_tools(
    tree: &Json<'_>,
    untyped: bool,
    client_side: impl Fn(&str) -> bool,
) -> Result<(), InspectFault> {
    let fine = |tool: &Json<'_>| match tool.get("type") {
        Some(kind) => kind.text().is_some_and(&client_side),
        None => untyped,
    };
    if objects(tree, "tools")?.iter().all(fine) { Ok(()) } else { Err(InspectFault::ProviderEgress("tools")) }
}

/// Whether a kind is this name followed by a date: what only begins like it may be somebody else's.
fn is_dated(kind: &str, name: &str) -> bool {
    let date = kind.strip_prefix(name).unwrap_or_default();
    !date.is_empty() && date.bytes().all(|byte| byte.is_ascii_digit())
}

/// Anthropic: what is done to the context on the way. Taking something out costs nothing; to sum it up is a call of its own,
/// which the report does not count.
fn check_edits(tree: &Json<'_>) -> Result<(), InspectFault> {
    let edits = object(tree, "context_management")?.map_or(Ok(&[][..]), |how| list(how, "edits"))?;
    let clears = |edit: &Json<'_>| {
        edit.get("type").and_then(Json::text).is_some_and(|kind| kind.starts_with("clear_"))
    };
    if edits.iter().all(clears) { Ok(()) } else { Err(InspectFault::Unpriced("context_management")) }
}

/// Responses: tools the client runs, one by one or grouped under a name. Items of the input bring such lists as well.
fn check_grouped_tools(holder: &Json<'_>) -> Result<(), InspectFault> {
    objects(holder, "tools")?.iter().try_for_each(|tool| match tool.get("type").and_then(Json::text) {
        Some("namespace") => check_grouped_tools(tool),
        Some(kind) if RESPONSES_CLIENT_TOOLS.contains(&kind) => Ok(()),
        Some(_) | None => Err(InspectFault::ProviderEgress("tools")),
    })
}

/// Anthropic: files the provider keeps, and a `source` that is not carried in the request itself. What a model passed to a
/// tool is not a request.
fn check_blocks(node: &Json<'_>, provider_tools: bool) -> Result<(), InspectFault> {
    let kind = node.get("type").and_then(Json::text).unwrap_or_default();
    // What the provider's own tools made is named in their results.
    let is_result = provider_tools && kind.ends_with("_output");
    if node.get("file_id").is_some() && !is_result {
        return Err(InspectFault::Stored("file_id"));
    }
    if let Some(source) = node.get("source").filter(|_| !provider_tools) {
        let kind = source.get("type").and_then(Json::text);
        // A search result names its source in text.
        if source.text().is_none() && !matches!(kind, Some("base64" | "text" | "content")) {
            return Err(InspectFault::ProviderEgress("source"));
        }
    }
    parts(node).try_for_each(|child| check_blocks(child, provider_tools))
}

/// What a node of a conversation holds, without what a model passed to a tool: that is the tool's.
pub(super) fn parts<'t, 'a>(node: &'t Json<'a>) -> impl Iterator<Item = &'t Json<'a>> {
    let is_call = node.get("type").and_then(Json::text).is_some_and(|kind| kind.ends_with("tool_use"));
    let named =
        node.entries().iter().filter(move |(key, _)| !(is_call && key == "input")).map(|(_, value)| value);
    named.chain(node.items())
}

/// Responses: an item that has an id and brings nothing else means one that the provider kept. A thought is brought sealed or not
/// at all: its summary is not what the provider goes on with.
fn check_items(input: &Json<'_>) -> Result<(), InspectFault> {
    let is_reference = |item: &Json<'_>| {
        let brings = |key: &&str| item.get(key).is_some_and(|value| !is_empty(value));
        let brought = match item.get("type").and_then(Json::text) {
            Some("reasoning") => &["encrypted_content"][..],
            Some(_) | None => &BROUGHT,
        };
        item.get("id").is_some() && !brought.iter().any(brings)
    };
    match input {
        Json::Text(_) => Ok(()),
        Json::List(items) if items.iter().any(is_reference) => Err(InspectFault::Stored("item_reference")),
        Json::List(_) => Ok(()),
        Json::Null | Json::Bool(_) | Json::Whole(_) | Json::Number | Json::Map(_) => {
            Err(InspectFault::Field("input"))
        }
    }
}

/// OpenAI: images and files by address or by id, tools brought by an item, and references to what the provider kept.
fn check_parts(node: &Json<'_>, provider_tools: bool) -> Result<(), InspectFault> {
    let kind = node.get("type").and_then(Json::text).unwrap_or_default();
    if kind == "item_reference" {
        return Err(InspectFault::Stored("item_reference"));
    }
    // Servers have many names for where the address of a picture, a sound or a paper stands.
    if !provider_tools && media::is_kind(kind) && media::names_address(node) {
        return Err(InspectFault::ProviderEgress("a URL to fetch"));
    }
    for (key, value) in node.entries() {
        match &**key {
            key if key.ends_with("_url") && !provider_tools && !is_inline(value) => {
                return Err(InspectFault::ProviderEgress("a URL to fetch"));
            }
            "audio" if value.get("id").is_some() => return Err(InspectFault::Stored("audio")),
            // Some servers take the address of a file where its content should be.
            "file_data" | "fileData" if !provider_tools && media::names_address(value) => {
                return Err(InspectFault::ProviderEgress("a URL to fetch"));
            }
            "file_id" if *value != Json::Null => return Err(InspectFault::Stored("file_id")),
            "tools" if !provider_tools => check_grouped_tools(node)?,
            _ => check_parts(value, provider_tools)?,
        }
    }
    node.items().iter().try_for_each(|item| check_parts(item, provider_tools))
}

fn is_inline(value: &Json<'_>) -> bool {
    match value {
        Json::Null => true,
        Json::Text(url) => url.starts_with("data:"),
        Json::Map(_) => value.get("url").and_then(Json::text).is_some_and(|url| url.starts_with("data:")),
        Json::Bool(_) | Json::Whole(_) | Json::Number | Json::List(_) => false,
    }
}

fn is_empty(value: &Json<'_>) -> bool {
    match value {
        Json::Text(text) => text.is_empty(),
        Json::List(items) => items.is_empty(),
        Json::Null | Json::Bool(_) | Json::Whole(_) | Json::Number | Json::Map(_) => false,
    }
}

/// Gemini: parts by URI. What a model passed to a function, and what that answered, is not a request.
fn check_file_data(node: &Json<'_>) -> Result<(), InspectFault> {
    check_file_data_beside(node, None)
}

fn check_file_data_beside(node: &Json<'_>, data: Option<&str>) -> Result<(), InspectFault> {
    for (key, value) in node.entries() {
        match &**key {
            "fileData" | "file_data" => return Err(InspectFault::ProviderEgress("fileData")),
            key if Some(key) == data => {}
            "functionCall" | "function_call" => check_file_data_beside(value, Some("args"))?,
            "functionResponse" | "function_response" => check_file_data_beside(value, Some("response"))?,
            _ => check_file_data(value)?,
        }
    }
    node.items().iter().try_for_each(check_file_data)
}

fn refuse_any(
    tree: &Json<'_>,
    keys: &[&'static str],
    fault: fn(&'static str) -> InspectFault,
) -> Result<(), InspectFault> {
    let meant = |value: &Json<'_>| !matches!(value, Json::List(items) if items.is_empty());
    match keys.iter().find(|key| tree.get(key).is_some_and(meant)) {
        Some(key) => Err(fault(key)),
        None => Ok(()),
    }
}

fn has_key(tree: &Json<'_>, key: &str) -> bool {
    tree.entries().iter().any(|(own, _)| own == key)
}

fn required_text(tree: &Json<'_>, key: &'static str) -> Result<String, InspectFault> {
    tree.get(key).and_then(Json::text).map(str::to_owned).ok_or(InspectFault::Field(key))
}

/// A field that is judged item by item. A provider may read one value as a list of one, so any other kind is a fault.
fn list<'t, 'a>(tree: &'t Json<'a>, key: &'static str) -> Result<&'t [Json<'a>], InspectFault> {
    match tree.get(key) {
        None => Ok(&[]),
        Some(Json::List(items)) => Ok(items),
        Some(_) => Err(InspectFault::Field(key)),
    }
}

fn objects<'t, 'a>(tree: &'t Json<'a>, key: &'static str) -> Result<&'t [Json<'a>], InspectFault> {
    let items = list(tree, key)?;
    let all = items.iter().all(|item| matches!(item, Json::Map(_)));
    if all { Ok(items) } else { Err(InspectFault::Field(key)) }
}

fn object<'t, 'a>(tree: &'t Json<'a>, key: &'static str) -> Result<Option<&'t Json<'a>>, InspectFault> {
    match tree.get(key) {
        found @ (None | Some(Json::Map(_))) => Ok(found),
        Some(_) => Err(InspectFault::Field(key)),
    }
}

fn switch(tree: &Json<'_>, key: &'static str) -> Result<bool, InspectFault> {
    match tree.get(key) {
        None => Ok(false),
        Some(Json::Bool(value)) => Ok(*value),
        Some(_) => Err(InspectFault::Field(key)),
    }
}

fn whole(tree: &Json<'_>, key: &'static str) -> Result<Option<u64>, InspectFault> {
    match tree.get(key) {
        None => Ok(None),
        Some(Json::Whole(value)) => Ok(Some(*value)),
        Some(_) => Err(InspectFault::Field(key)),
    }
}

/// A limit that is given; one that is null leaves no place to set it, and none is no limit to some servers.
fn limit(tree: &Json<'_>, key: &'static str, open: OutputLimit) -> Result<OutputLimit, InspectFault> {
    Ok(match whole(tree, key)? {
        Some(0) => return Err(InspectFault::Field(key)),
        Some(most) => OutputLimit::Given(most),
        None if has_key(tree, key) => OutputLimit::Unlimited,
        None => open,
    })
}
