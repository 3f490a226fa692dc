//! The dialects a broker speaks and the header each carries its key in.

named_enum! {
    /// What is spoken between client, broker and upstream.
    pub enum Api {
        Anthropic => "anthropic",
        /// Responses and Chat Completions, as OpenAI serves both under one key.
        Openai => "openai",
        /// Chat Completions alone, for the many servers that speak only that.
        OpenaiChat => "openai-chat",
        Gemini => "gemini",
    }
}

named_enum! {
    /// The header the upstream expects its key in.
    pub enum Auth {
        Bearer => "bearer",
        XApiKey => "x-api-key",
        XGoogApiKey => "x-goog-api-key",
        ApiKey => "api-key",
    }
}

impl Api {
    /// Where the API's own provider serves it; none where there is no one provider.
    pub const fn home(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some("https://api.anthropic.com"),
            Self::Openai => Some("https://api.openai.com"),
            Self::OpenaiChat => None,
            Self::Gemini => Some("https://generativelanguage.googleapis.com"),
        }
    }

    pub const fn auth(self) -> Auth {
        match self {
            Self::Anthropic => Auth::XApiKey,
            Self::Openai | Self::OpenaiChat => Auth::Bearer,
            Self::Gemini => Auth::XGoogApiKey,
        }
    }
}

impl Auth {
    /// The header's name in lower case, and what stands before the key.
    pub const fn header(self) -> (&'static str, &'static str) {
        match self {
            Self::Bearer => ("authorization", "Bearer "),
            Self::XApiKey => ("x-api-key", ""),
            Self::XGoogApiKey => ("x-goog-api-key", ""),
            Self::ApiKey => ("api-key", ""),
        }
    }
}
