//! The spelling a refused host rule should have had. A guess for people only: the caller parses it
//! again, and nothing is ever allowed because of what stands here.

/// A canonical spelling of what `text` probably meant, if it can be told.
pub(super) fn respell(text: &str) -> Option<String> {
    let text = text.trim();
    let text = text.split_once("://").map_or(text, |(_, rest)| rest);
    let text = text.split(['/', '?', '#']).next()?;
    let text = text.rsplit_once('@').map_or(text, |(_, host)| host);
    let text = text.to_lowercase();
    let (host, port) = text.split_once(':').map_or((text.as_str(), None), |(host, port)| (host, Some(port)));
    let host = host.strip_suffix('.').unwrap_or(host);
    let (base, wildcard) = split_wildcard(host);
    let base = base.split('.').map(to_ascii_label).collect::<Option<Vec<_>>>()?.join(".");
    let star = if wildcard { "*." } else { "" };
    Some(port.map_or_else(|| format!("{star}{base}"), |port| format!("{star}{base}:{port}")))
}

/// `*.d`, `**.d`, `.d` and `*d` are all seen in the wild for "below d".
fn split_wildcard(host: &str) -> (&str, bool) {
    let base = host.trim_start_matches('*');
    let dotless = base.strip_prefix('.').unwrap_or(base);
    (dotless, dotless.len() != host.len())
}

fn to_ascii_label(label: &str) -> Option<String> {
    if label.is_ascii() {
        return Some(label.to_owned());
    }
    // Compatibility forms (fullwidth and friends) would need a mapping table; those get no advice.
    let plain = |c: char| c == '-' || (c.is_alphanumeric() && !('\u{f900}'..='\u{ffff}').contains(&c));
    label.chars().all(plain).then(|| punycode(label)).flatten().map(|code| format!("xn--{code}"))
}

/// RFC 3492, section 6.3, with that document's names and parameters.
fn punycode(label: &str) -> Option<String> {
    let mut output: String = label.chars().filter(char::is_ascii).collect();
    let basic = u32::try_from(output.len()).ok()?;
    let total = u32::try_from(label.chars().count()).ok()?;
    if basic > 0 {
        output.push('-');
    }
    let (mut n, mut delta, mut bias, mut handled) = (128_u32, 0_u32, 72_u32, basic);
    while handled < total {
        let next = label.chars().map(u32::from).filter(|code| *code >= n).min()?;
        delta = delta.checked_add((next - n).checked_mul(handled + 1)?)?;
        n = next;
        for code in label.chars().map(u32::from) {
            if code < n {
                delta = delta.checked_add(1)?;
            } else if code == n {
                push_variable_length(&mut output, delta, bias)?;
                bias = adapt(delta, handled + 1, handled == basic);
                delta = 0;
                handled += 1;
            }
        }
        delta = delta.checked_add(1)?;
        n += 1;
    }
    Some(output)
}

fn push_variable_length(output: &mut String, delta: u32, bias: u32) -> Option<()> {
    let mut rest = delta;
    for k in (36_u32..).step_by(36) {
        let threshold = k.saturating_sub(bias).clamp(1, 26);
        if rest < threshold {
            break;
        }
        output.push(digit(threshold + (rest - threshold) % (36 - threshold))?);
        rest = (rest - threshold) / (36 - threshold);
    }
    output.push(digit(rest)?);
    Some(())
}

fn digit(value: u32) -> Option<char> {
    char::from_digit(if value < 26 { value + 10 } else { value - 26 }, 36)
}

fn adapt(delta: u32, points: u32, first: bool) -> u32 {
    let mut delta = if first { delta / 700 } else { delta / 2 };
    delta += delta / points;
    let mut k = 0;
    while delta > 455 {
        delta /= 35;
        k += 36;
    }
    k + 36 * delta / (delta + 38)
}

#[cfg(test)]
mod tests {
    use super::respell;

    #[test]
    fn respells_what_people_write() {
        let table = [
            ("https://Git.Acme.com/group/repo?x#y", Some("git.acme.com")),
            (" git.acme.com ", Some("git.acme.com")),
            ("https://user:word@git.acme.com/x", Some("git.acme.com")),
            ("git.acme.com.", Some("git.acme.com")),
            ("GIT.acme.com:8443", Some("git.acme.com:8443")),
            (".acme.com", Some("*.acme.com")),
            ("**.acme.com", Some("*.acme.com")),
            ("*acme.com", Some("*.acme.com")),
            ("b\u{fc}cher.de", Some("xn--bcher-kva.de")),
            ("M\u{dc}NCHEN.de", Some("xn--mnchen-3ya.de")),
            ("\u{4f8b}\u{3048}.jp", Some("xn--r8jz45g.jp")),
            ("\u{43f}\u{440}\u{438}\u{43c}\u{435}\u{440}.com", Some("xn--e1afmkfd.com")),
            ("\u{ff47}ithub.com", None),
            ("git\u{200d}hub.com", None),
        ];
        for (given, expected) in table {
            assert_eq!(respell(given).as_deref(), expected, "{given}");
        }
    }
}
