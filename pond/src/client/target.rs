//! The path and query of a request, made of parts that are escaped one by one: no name of a run or a stage can lead elsewhere.

use std::fmt::Write as _;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target(String);

impl Target {
    pub(crate) fn new(parts: &[&str]) -> Self {
        let mut text = String::from("/v1");
        for part in parts {
            text.push('/');
            escape(part, &mut text);
        }
        Self(text)
    }

    pub(crate) fn with(mut self, key: &str, value: &str) -> Self {
        self.0.push(if self.0.contains('?') { '&' } else { '?' });
        escape(key, &mut self.0);
        self.0.push('=');
        escape(value, &mut self.0);
        self
    }

    /// The same, if there is a value.
    pub(crate) fn maybe(self, key: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

fn escape(part: &str, out: &mut String) {
    let is_dots = !part.is_empty() && part.bytes().all(|byte| byte == b'.');
    for byte in part.bytes() {
        let plain =
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~') || (byte == b'.' && !is_dots);
        if plain {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            write!(out, "%{byte:02X}").unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stay_parts() {
        let target = Target::new(&["runs", "../x?y#z\r\n", "..", "a.b"]).with("q", "a&b=c").maybe("n", None);
        assert_eq!(target.as_str(), "/v1/runs/..%2Fx%3Fy%23z%0D%0A/%2E%2E/a.b?q=a%26b%3Dc");
    }
}
