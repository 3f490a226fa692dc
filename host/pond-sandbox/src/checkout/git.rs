//! Pure: a git configuration without the credentials people and CI systems leave in it.
//!
//! The job needs the repository's settings and must not get the owner's tokens. Two places hold them: user information in an
//! address, wherever an address stands, and a few keys whose value is a credential or the way to one. Both are cut; everything
//! else is kept to the byte.

/// Keys whose value is, or fetches, a credential. Compared without regard to case, as git does.
const SECRET_KEYS: [&str; 13] = [
    "askpass",
    "cookiefile",
    "extraheader",
    "helper",
    "oauthtoken",
    "pass",
    "password",
    "proxysslcert",
    "proxysslkey",
    "smtppass",
    "sslcert",
    "sslkey",
    "token",
];
/// Its value is an address that needs no scheme before the user.
const PROXY: &str = "proxy";

/// The text without credentials, or nothing when it holds none.
pub(super) fn scrub(text: &str) -> Option<String> {
    let mut kept = String::with_capacity(text.len());
    let mut lines = text.split_inclusive('\n');
    while let Some(first) = lines.next() {
        // More may be taken together than git would: a comment is not continued. Each is still looked at by itself.
        let mut together = vec![first];
        while together.last().is_some_and(|line| continues(line)) {
            let Some(next) = lines.next() else { break };
            together.push(next);
        }
        let cut = cut(&together);
        // Quotes and continued lines hide nothing: what still reads as a user's address without them goes as a whole.
        let read = unquoted(&cut);
        if without_user_information(&read) == read {
            kept.push_str(&cut);
        } else if let Some(header) = header(first) {
            kept.push_str(header);
            kept.push('\n');
        }
    }
    (kept != text).then_some(kept)
}

/// Lines without what each of them says by itself; the rest of a value goes with its beginning.
fn cut(lines: &[&str]) -> String {
    let whole = lines.concat();
    let mut kept = String::new();
    let mut dropping = false;
    for line in lines {
        let drops = dropping || line_key(line).is_some_and(|key| is_secret(key, &whole));
        if !drops {
            kept.push_str(&without_user_information(line));
        } else if let Some(header) = header(line) {
            kept.push_str(header);
            kept.push('\n');
        }
        dropping = drops && continues(line);
    }
    kept
}

fn unquoted(text: &str) -> String {
    text.replace("\\\r\n", "").replace("\\\n", "").replace(['"', ' ', '\t'], "")
}

fn is_secret(key: &str, value: &str) -> bool {
    let is = |name: &&str| key.eq_ignore_ascii_case(name);
    SECRET_KEYS.iter().any(is) || (is(&PROXY) && value.contains('@'))
}

/// A section's header, where a line begins with one. A bracket in quotes does not end it.
fn header(line: &str) -> Option<&str> {
    // git reads past the mark that some editors put at the beginning of a file.
    let is_blank = |letter: char| letter.is_whitespace() || letter == '\u{feff}';
    let start = line.len() - line.trim_start_matches(is_blank).len();
    let mut quoted = false;
    let mut escaped = false;
    for (at, letter) in line.char_indices().skip_while(|(at, _)| *at < start) {
        match letter {
            _ if at == start && letter != '[' => return None,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            ']' if !quoted => return line.get(..=at),
            _ => {}
        }
    }
    None
}

/// The key a line sets, also when it follows a section header on the same line.
fn line_key(line: &str) -> Option<&str> {
    let after_header = header(line).and_then(|header| line.get(header.len()..)).unwrap_or(line);
    after_header.split(['=', ' ', '\t', '\r', '\n']).find(|word| !word.is_empty())
}

fn continues(line: &str) -> bool {
    line.trim_end_matches(['\r', '\n']).ends_with('\\')
}

/// Cuts `user:token@` out of every `scheme://user:token@host` of a line.
fn without_user_information(line: &str) -> String {
    let mut result = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("://") {
        result.push_str(before);
        result.push_str("://");
        let end = after.find(['/', '"', '\'', ' ', '\t', '\r', '\n']).unwrap_or(after.len());
        let (authority, tail) = after.split_at(end);
        result.push_str(authority.rsplit_once('@').map_or(authority, |(_, host)| host));
        rest = tail;
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    //! Every known hiding place of a credential, and the bytes that must survive.
    use super::*;

    #[test]
    fn credentials_are_cut_and_the_rest_is_kept() {
        let text = "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://x-access-token:ghs_abc@github.com/a/b.git\n\
                    \tfetch = +refs/heads/*:refs/remotes/origin/*\n[http \"https://github.com/\"]\n\
                    \textraheader = AUTHORIZATION: basic c2VjcmV0\n[credential]\n\thelper = store --file \\\n\t/x/y\n\
                    [url \"https://tok@git.acme.com/\"]\n\tinsteadOf = https://git.acme.com/\n[user]\n\temail = a@b.c\n";
        let expected = "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://github.com/a/b.git\n\
                        \tfetch = +refs/heads/*:refs/remotes/origin/*\n[http \"https://github.com/\"]\n\
                        [credential]\n[url \"https://git.acme.com/\"]\n\tinsteadOf = https://git.acme.com/\n\
                        [user]\n\temail = a@b.c\n";
        assert_eq!(scrub(text).as_deref(), Some(expected));
    }

    #[test]
    fn odd_spellings_do_not_hide_a_credential() {
        for text in [
            "[http] ExtraHeader = Authorization: Bearer abc\n",
            "[remote \"o\"]\n url=https://a:b@c@host/x\n",
            "[credential]\r\n\tHELPER=!echo password=abc\r\n",
            "[x]\n\tpassword\n",
            "[sendemail]\n\tsmtpPass = abc\n[imap]\n\tpass = abc\n",
            "[http]\n\tproxy = user:abc@proxy:3128\n",
            "[http]\n\tproxy = user:\\\nabc@proxy:3128\n",
            "\u{feff}[http] extraheader = abc\n",
            "[http \"https://[::1]/\"] extraheader = abc\n",
            "[remote \"o\"]\n\turl = https://u:a\\\nbc@host/x\n",
            "[remote \"o\"]\n\turl = https://u:ab\\\nc@host/abc\n",
            "[remote \"o\"]\n\turl = https://user:\"abc\"@host/x\n",
            "[remote \"o\"] url = \"https://u:a b\"c@host/x\n",
            "# a comment \\\n[http] extraheader = abc\n",
        ] {
            let kept = scrub(text).unwrap_or_else(|| panic!("{text:?} holds one"));
            assert!(!kept.contains("abc") && !kept.contains("a:b") && !kept.contains("c@"), "{kept:?}");
        }
    }

    /// Where a whole line goes, what the ones after it belong to stays.
    #[test]
    fn a_header_outlives_its_first_setting() {
        for text in [
            "[http \"a]b\"] extraheader = abc\n\tsslVerify = true\n",
            "[http \"a]b\"] url = https://u:\"abc\"@h/\n\tsslVerify = true\n",
        ] {
            assert_eq!(scrub(text).as_deref(), Some("[http \"a]b\"]\n\tsslVerify = true\n"));
        }
    }

    #[test]
    fn a_configuration_without_credentials_is_left_alone() {
        let quoted = "[alias]\n\tlg = \"log --author=me@here \\\n\t--format='%h'\"\n[url \"git@host:\"]\n\tinsteadOf = https://host/\n";
        assert_eq!(scrub(quoted), None);
        assert_eq!(
            scrub("[remote \"origin\"]\n\turl = https://github.com/a/b.git\n\tmail = me@here\n"),
            None
        );
    }
}
