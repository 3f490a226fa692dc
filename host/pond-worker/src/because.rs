//! Faults in one line, causes included.

/// A fault with everything that led to it, for a person to read.
#[must_use]
pub fn because(fault: &dyn std::error::Error) -> String {
    let mut text = fault.to_string();
    let mut cause = fault.source();
    while let Some(source) = cause {
        text += &format!(": {source}");
        cause = source.source();
    }
    text
}
