//! Tokens of the Fernet specification and of PyPI's cryptography are opened by whichever key can; each fault bears its name, and no value.

use super::*;

/// The example of the specification.
const KEY: &str = "cw_0x689RpI-jtRR7oE8h_eQsKImvJapLeSbXpwF4e4=";
const TOKEN: &str =
    "gAAAAAAdwJ6wAAECAwQFBgcICQoLDA0ODy021cpGVWKZ_eEwCGM4BLLF_5CV9dOPmrhuVUPgJobwOz7JcbmrR64jVmpU4IwqDA==";
/// Of cryptography 48: text, what is no text, nothing, and one of a key that is not here.
const KEY_2: &str = "VuVYvxWXWQeztes17cGLM3DeFb-bBDv7aYRDHQR5BrE=";
const TOKEN_2: &str =
    "gAAAAABq_npc2gNtDleSCuyX5Ue-AYyov4DtHtT82MX_txgx-raUHpyc5hqU8WYvsmHFzFQd6ErE3cC8JzrcUfmJzVMkouhoCg==";
const BINARY: &str =
    "gAAAAABq_npcGoo_W3asZY_gLu6h6ZwGTGVMT-gh9P34dldT5x7q0Sdp16BDBDy4ojEFDXocLTe0FIkQ78c6asN4yI7N9U08hA==";
const EMPTY: &str =
    "gAAAAABq_npccPELfc9japn0ELDWwARZjb6ZQF_VdaC2eLgwB3gkMN8vAKzjilPOAZnqn-IiONC7CDCVKy2Q0ZPpm8VMCn9Fnw==";
const STRANGE: &str =
    "gAAAAABq_npcT-TKLWVpGrBNVTi2B_1EceCR87tIPl_koo8nJ135SWJGRNwY7fyuicuwVohP78cLnNZX-4BDobJVswAQB6LdRw==";

type Pairs<T> = Vec<(T, String)>;

fn opened(text: &str, keyring: &str) -> Result<Pairs<String>, Pairs<Code>> {
    let secrets = keys(keyring).and_then(|keys| open(text, &keys));
    let pair = |secret: &Opened| (secret.name.to_string(), secret.value.as_str().to_owned());
    let fault = |refusal: Refusal| (refusal.code, refusal.path.to_string());
    secrets
        .map(|secrets| secrets.iter().map(pair).collect())
        .map_err(|refusals| refusals.into_list().into_iter().map(fault).collect())
}

#[test]
fn tokens_are_opened_by_the_key_that_can() {
    let expected = Ok(vec![
        ("claude".to_owned(), "hello".to_owned()),
        ("db.pass-word".to_owned(), "second value".to_owned()),
    ]);
    let both = format!("{KEY_2}\n\n{KEY}\n");
    let one = format!("{{\n \"claude\": \"{TOKEN}\",\n \"db.pass-word\": \"{TOKEN_2}\"\n}}\n");
    assert_eq!(opened(&one, &both), expected);
    let lines = format!("{{\"claude\": \"{TOKEN}\"}}\n\n{{\"db.pass-word\": \"{TOKEN_2}\"}}\n");
    assert_eq!(opened(&lines, &both), expected);
    assert_eq!(opened(&lines, &format!("{KEY}\n{KEY_2}")), expected);
}

#[test]
fn every_fault_bears_the_name_of_its_secret() {
    let text = format!(
        "{{\"good\": \"{TOKEN}\", \"good\": \"{TOKEN}\", \"a b\": \"{TOKEN}\", \"theirs\": \"{STRANGE}\", \"cut\": \"gAAAAAAd\", \
         \"plain\": \"sk-not-sealed\", \"number\": 7, \"binary\": \"{BINARY}\", \"empty\": \"{EMPTY}\"}}"
    );
    let fault = |code, path: &str| (code, path.to_owned());
    let expected = vec![
        fault(Code::DuplicateField, "good"),
        fault(Code::NameInvalid, "[\"a b\"]"),
        fault(Code::FernetTokenUnopened, "theirs"),
        fault(Code::FernetTokenMalformed, "cut"),
        fault(Code::FernetTokenMalformed, "plain"),
        fault(Code::WrongType, "number"),
        fault(Code::SecretInvalid, "binary"),
        fault(Code::SecretInvalid, "empty"),
    ];
    assert_eq!(opened(&text, &format!("{KEY}\n{KEY_2}")), Err(expected));
}

#[test]
fn what_is_no_file_of_tokens_or_keys() {
    let fault = |code| Err(vec![(code, ".".to_owned())]);
    for bad in ["[]", "\"sk-plain\"", "{\"a\": ", "{} sk-plain"] {
        assert_eq!(opened(bad, KEY), fault(Code::DocumentInvalid), "{bad}");
        let said = open(bad, &keys(KEY).unwrap()).unwrap_err().to_string();
        assert!(!said.contains("sk-plain"), "{said}");
    }
    for empty in ["", "{}", "{}\n{}\n"] {
        assert_eq!(opened(empty, KEY), fault(Code::TooFew), "{empty}");
    }
    for bad in ["", "\n", TOKEN, "AAAA"] {
        assert_eq!(opened("{}", bad), fault(Code::FernetKeyInvalid), "{bad}");
    }
    let two = format!("{KEY}\nsk-plain\n");
    let said = keys(&two).unwrap_err().to_string();
    assert!(said.contains("line 2") && !said.contains("sk-plain"), "{said}");
}
