//! What a rule may say, and what is said about it.

use super::{check_config, rule};
use crate::egress::{HostRule, HostWarningCode, lint};

#[test]
fn case_39_wildcards_that_cover_strangers() {
    check_config(&[
        ("*", "host_invalid", None),
        ("*.", "host_invalid", None),
        ("**", "host_invalid", None),
        ("*:443", "host_invalid", None),
        ("*.com", "host_invalid", None),
        ("*.co.uk", "host_invalid", None),
        ("*.github.io", "host_shared", None),
        ("*.ck", "host_invalid", None),
        ("*.foo.ck", "host_invalid", None),
        ("*.kawasaki.jp", "host_invalid", None),
        ("*.unknowntld", "host_invalid", None),
        ("co.uk", "host_invalid", None),
        ("a.*.acme.com", "host_invalid", None),
        ("*acme.com", "host_invalid", Some("*.acme.com")),
        ("a*.acme.com", "host_invalid", None),
        ("acme.*", "host_invalid", None),
        ("*.*.acme.com", "host_invalid", None),
        ("**.acme.com", "host_invalid", Some("*.acme.com")),
        (".acme.com", "host_invalid", Some("*.acme.com")),
    ]);
}

#[test]
fn case_40_the_accepted_spelling_is_printed() {
    check_config(&[
        ("https://git.acme.com", "host_invalid", Some("git.acme.com")),
        ("https://git.acme.com:8443/x", "host_invalid", Some("git.acme.com:8443")),
        ("git.acme.com/repo", "host_invalid", Some("git.acme.com")),
        ("git.acme.com?x", "host_invalid", Some("git.acme.com")),
        (" git.acme.com", "host_invalid", Some("git.acme.com")),
        ("git.acme.com\n", "host_invalid", Some("git.acme.com")),
        ("git acme.com", "host_invalid", None),
        ("Git.Acme.com", "host_invalid", Some("git.acme.com")),
        ("*.Acme.com", "host_invalid", Some("*.acme.com")),
        ("git.acme.com.", "host_invalid", Some("git.acme.com")),
        ("git.acme.com.:8443", "host_invalid", Some("git.acme.com:8443")),
        ("b\u{fc}cher.de", "host_invalid", Some("xn--bcher-kva.de")),
        ("\u{ff47}ithub.com", "host_invalid", None),
        ("user@git.acme.com", "host_invalid", Some("git.acme.com")),
        ("git.acme.com\0", "host_invalid", None),
        ("git%2eacme.com", "host_invalid", None),
        ("", "host_invalid", None),
        ("git.acme.com:", "host_invalid", None),
        ("git.acme.com:0", "host_invalid", None),
        ("git.acme.com:0443", "host_invalid", None),
        ("git.acme.com:https", "host_invalid", None),
        ("git.acme.com:443:443", "host_invalid", None),
        ("HTTPS://API.OPENAI.COM/", "host_invalid", None),
    ]);
}

#[test]
fn case_41_addresses_and_single_labels() {
    check_config(&[
        ("1.1.1.1", "host_invalid", None),
        ("*.1.1.1.1", "host_invalid", None),
        ("127.1", "host_invalid", None),
        ("0x7f.1", "host_invalid", None),
        ("2852039166", "host_invalid", None),
        ("[::1]", "host_invalid", None),
        ("[::1]:443", "host_invalid", None),
        ("::1", "host_invalid", None),
        ("*.::1", "host_invalid", None),
        ("localhost", "host_invalid", None),
        ("metadata", "host_invalid", None),
        ("com", "host_invalid", None),
    ]);
}

#[test]
fn case_136_model_apis_have_one_door() {
    let reserved = [
        "api.anthropic.com",
        "api.openai.com",
        "*.anthropic.com",
        "*.openai.com",
        "api.openai.com:8443",
        "generativelanguage.googleapis.com",
        "us-central1-aiplatform.googleapis.com",
        "*.googleapis.com",
        "acme.openai.azure.com",
        "*.openai.azure.com",
        "bedrock-runtime.us-east-1.amazonaws.com",
        "openrouter.ai",
        "api.mistral.ai",
        "*.x.ai",
        "x.api.openai.com",
    ];
    for text in reserved {
        check_config(&[(text, "host_reserved", None)]);
    }
}

#[test]
fn case_139_hosts_of_every_tenant() {
    let shared = [
        "*.amazonaws.com",
        "*.us-east-1.amazonaws.com",
        "*.s3.amazonaws.com",
        "s3.amazonaws.com",
        "s3.us-east-1.amazonaws.com",
        "*.compute.amazonaws.com",
        "*.eu-nowhere-1.amazonaws.com",
        "*.b-cdn.net",
        "*.x.webhook.site",
        "storage.googleapis.com",
        "*.storage.googleapis.com",
        "*.blob.core.windows.net",
        "blob.core.windows.net",
        "*.core.windows.net",
        "*.windows.net",
        "*.cloudfront.net",
        "cloudfront.net",
        "*.workers.dev",
        "*.vercel.app",
        "*.github.io",
        "*.githubusercontent.com",
        "*.pages.dev",
        "*.netlify.app",
        "*.a.run.app",
        "*.run.app",
        "*.ngrok.io",
        "abc.ngrok-free.app",
        "*.trycloudflare.com",
        "abc.loca.lt",
    ];
    for text in shared {
        check_config(&[(text, "host_shared", None)]);
    }
    let others = [
        "acme.s3.amazonaws.com",
        "acme.github.io",
        "acme.vercel.app",
        "acme.blob.core.windows.net",
        "d111.cloudfront.net",
        "raw.githubusercontent.com",
        "*.notamazonaws.com",
        "notpastebin.com",
    ];
    for text in others {
        assert_eq!(rule(text).to_string(), text);
    }
}

#[test]
fn cases_140_and_143_telemetry_and_relays() {
    let shared = [
        "sentry.io",
        "o1.ingest.sentry.io",
        "*.sentry.io",
        "statsig.com",
        "statsigapi.net",
        "statsig.anthropic.com",
        "*.datadoghq.com",
        "http-intake.logs.datadoghq.com",
        "api.segment.io",
        "*.segment.io",
        "webhook.site",
        "pastebin.com",
        "hooks.slack.com",
        "api.telegram.org",
        "translate.goog",
        "acme-com.translate.goog",
        "transfer.sh",
        "*.oastify.com",
    ];
    for text in shared {
        check_config(&[(text, "host_shared", None)]);
    }
}

#[test]
fn case_40_credentials_in_a_rule_are_not_repeated() {
    let fault = HostRule::parse_config("https://user:SECRET@git.acme.com").unwrap_err();
    let (shown, better) = (fault.to_string(), fault.suggestion());
    assert_eq!(shown, "\"...@git.acme.com\" is not a host rule: it starts with a scheme");
    assert_eq!(better, Some("git.acme.com"));
    for text in ["SECRET@git.acme.com", "user:SECRET@h.com/x", "[SECRET@::1]", "*.SECRET@x.*"] {
        let shown = format!("{:?}", HostRule::parse_config(text).unwrap_err());
        assert!(!shown.contains("SECRET") && !shown.contains("secret"), "{shown}");
    }
}

#[test]
fn cases_137_138_and_141_are_warnings() {
    use HostWarningCode::{HostNotNeeded, HostPathLeak, HostWriteChannel};
    let table: [(&str, &[HostWarningCode]); 12] = [
        ("github.com", &[HostWriteChannel]),
        ("api.github.com", &[HostWriteChannel]),
        ("gist.github.com", &[HostWriteChannel]),
        ("uploads.github.com", &[HostWriteChannel]),
        ("*.github.com", &[HostWriteChannel; 3]),
        ("registry.npmjs.org", &[HostWriteChannel]),
        ("upload.pypi.org", &[HostNotNeeded]),
        ("crates.io", &[HostNotNeeded]),
        ("proxy.golang.org", &[HostPathLeak]),
        ("pypi.org", &[]),
        ("static.crates.io", &[]),
        ("git.acme.com", &[]),
    ];
    for (text, expected) in table {
        let codes: Vec<HostWarningCode> = lint(&rule(text)).iter().map(|warning| warning.code).collect();
        assert_eq!(codes, expected, "{text}");
    }
}
