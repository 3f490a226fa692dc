//! Pure: a git configuration without the credentials people and CI systems leave in it.
//!
//! The job needs the repository's settings and must not get the owner's tokens. Two places hold them: user information in an
//! address, wherever an address stands, and a few keys whose value is a credential or the way to one. Both are cut; everything
//! else is kept to the byte.

/// Keys whose value is, or fetches, a credential. Compared without regard to case, as git does.
const SECRET_KEYS: [&str; 9] = [
    "askpass",
    "cookiefile",
    "extraheader",
    "helper",
    "oauthtoken",
    "password",
    "sslcert",
    "sslkey",
    "token",
];

/// The text without credentials, or nothing when it holds none.
pub(super) fn scrub(text: &str) -> Option<String> {
    let mut kept = String::with_capacity(text.len());
    let mut dropping = false;
    for line in text.split_inclusive('\n') {
        let drops = dropping || line_key(line).is_some_and(is_secret);
        if !drops {
            kept.push_str(&without_user_information(line));
        }
        dropping = drops && continues(line);
    }
    (kept != text).then_some(kept)
}

fn is_secret(key: &str) -> bool {
    SECRET_KEYS.iter().any(|secret| key.eq_ignore_ascii_case(secret))
}

/// The key a line sets, also when it follows a section header on the same line.
fn line_key(line: &str) -> Option<&str> {
    let after_header = match line.trim_start().strip_prefix('[') {
        Some(header) => header.split_once(']')?.1,
        None => line,
    };
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
        ] {
            let kept = scrub(text).unwrap_or_else(|| panic!("{text:?} holds one"));
            assert!(!kept.contains("abc") && !kept.contains("a:b") && !kept.contains("c@"), "{kept:?}");
        }
    }

    #[test]
    fn a_configuration_without_credentials_is_left_alone() {
        assert_eq!(
            scrub("[remote \"origin\"]\n\turl = https://github.com/a/b.git\n\tmail = me@here\n"),
            None
        );
    }
}
