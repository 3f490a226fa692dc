//! A token is admitted by the row it was stored as, and by no other.

use super::*;

#[test]
fn a_token_is_admitted_by_its_own_row_only() {
    let (mine, other) = (Bearer::generate(Kind::Api).unwrap(), Bearer::generate(Kind::Api).unwrap());
    let stored = mine.stored();
    let shown = Bearer::parse(&mine.to_text()).unwrap();
    assert!(stored.admits(&shown) && !stored.admits(&other));
    let moved = StoredBearer { id: other.id.clone(), ..stored.clone() };
    let raised = StoredBearer { kind: Kind::Relay, ..stored.clone() };
    assert!(!moved.admits(&shown) && !raised.admits(&shown));
    let renamed = Bearer { kind: Kind::Bundle, id: mine.id.clone(), secret: mine.secret.clone() };
    assert!(!stored.admits(&renamed));
}

#[test]
fn what_is_stored_or_printed_is_not_the_token() {
    let token = Bearer::generate(Kind::Bundle).unwrap();
    let text = token.to_text();
    let secret = text.rsplit('_').next().unwrap();
    let stored = serde_json::to_string(&token.stored()).unwrap();
    assert!(!stored.contains(secret) && !format!("{token:?}").contains(secret));
    assert!(format!("{token:?}").starts_with("Bearer(pond_bundle_"));
}

#[test]
fn a_token_has_one_spelling() {
    let token = Bearer::generate(Kind::Api).unwrap();
    let text = token.to_text().as_str().to_owned();
    for kind in Kind::ALL {
        assert_eq!(
            Bearer::parse(&Bearer::generate(kind).unwrap().to_text()).map(|token| token.kind()),
            Ok(kind)
        );
    }
    for bad in [
        String::new(),
        "pond_api".to_owned(),
        text.to_uppercase(),
        text.replacen("api", "admin", 1),
        text.replacen("pond", "bond", 1),
        format!("{text}_"),
        format!("{text}00"),
        text[..text.len() - 2].to_owned(),
        text.replacen(token.id(), "00", 1),
        text.replacen(token.id(), "../../../../etc/", 1),
        format!("{text}{}", "0".repeat(200)),
    ] {
        assert_eq!(Bearer::parse(&bad).map(|_| ()), Err(BearerFault::Malformed), "{bad}");
    }
}
