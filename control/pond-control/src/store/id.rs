//! Ids that carry their kind, and moments of the control plane's clock.
//!
//! An id is a kind and hexadecimal digits: 12 of the time it was made, 4 of a count, 16 of chance. Later ones sort later (those of
//! one process within a millisecond too), none can be guessed, and none occurs in two stores, so that a statement about one job
//! is about no other.

use std::fmt;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use pond_seal::bearer::Bearer;
use pond_seal::fresh;

use super::engine::{Fault, Value};

/// Milliseconds since 1970, by the clock of whoever runs the control plane. The store never reads one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub i64);

impl Moment {
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    /// For people, to the second; a number where no calendar reaches.
    #[must_use]
    pub fn to_utc(self) -> String {
        let told =
            Timestamp::from_millisecond(self.0).map(|at| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string());
        told.unwrap_or_else(|_| self.0.to_string())
    }
}

impl From<Moment> for Value<'_> {
    fn from(moment: Moment) -> Self {
        Self::Int(Some(moment.0))
    }
}

macro_rules! typed_id {
    ($( $(#[$meta:meta])* $type:ident => $kind:literal ),+ $(,)?) => { $(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(String);

        impl $type {
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                is_id(text, $kind).then(|| Self(text.to_owned()))
            }

            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<'a> From<&'a $type> for Value<'a> {
            fn from(id: &'a $type) -> Self {
                Self::Text(Some(&id.0))
            }
        }
    )+ };
}

typed_id! {
    RunId => "run_",
    StageId => "stage_",
    /// One try at a stage.
    JobId => "job_",
    WorkerId => "worker_",
    CredentialId => "cred_",
    BundleId => "bundle_",
    TokenId => "tok_",
}

macro_rules! made_here {
    ($( $type:ident => $kind:literal ),+ $(,)?) => { $(
        impl $type {
            pub(super) fn new(now: Moment) -> Result<Self, Fault> {
                fresh_id($kind, now).map(Self)
            }
        }
    )+ };
}

made_here! {
    RunId => "run_",
    StageId => "stage_",
    JobId => "job_",
    WorkerId => "worker_",
    CredentialId => "cred_",
    BundleId => "bundle_",
}

impl TokenId {
    /// The id a token's holder shows; whoever made the token chose it.
    pub(super) fn of(bearer: &Bearer) -> Option<Self> {
        Self::parse(&format!("tok_{}", bearer.id()))
    }
}

/// What keeps ids of one moment in the order they were made.
static COUNT: AtomicU16 = AtomicU16::new(0);

fn fresh_id(kind: &str, now: Moment) -> Result<String, Fault> {
    let chance = u64::from_be_bytes(*fresh::bytes::<8>()?);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let time = u64::try_from(now.0).unwrap_or(0) & 0xffff_ffff_ffff;
    Ok(format!("{kind}{time:012x}{count:04x}{chance:016x}"))
}

fn is_id(text: &str, kind: &str) -> bool {
    let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.strip_prefix(kind).is_some_and(|rest| rest.len() == 32 && rest.bytes().all(digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_told_as_people_write_it() {
        for (millis, told) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (-1, "1969-12-31 23:59:59 UTC"),
            (951_782_399_999, "2000-02-28 23:59:59 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (1_800_000_000_000, "2027-01-15 08:00:00 UTC"),
            (4_107_542_399_000, "2100-02-28 23:59:59 UTC"),
            (4_107_542_400_000, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(Moment(millis).to_utc(), told);
        }
    }

    #[test]
    fn ids_sort_by_time_and_carry_their_kind() {
        let (early, late) = (RunId::new(Moment(1)).unwrap(), RunId::new(Moment(1_700_000_000_000)).unwrap());
        assert!(early < late);
        assert_eq!(RunId::parse(early.as_str()), Some(early.clone()));
        assert_ne!(RunId::new(Moment(1)).unwrap(), early);
        let shorter = &late.as_str()[..late.as_str().len() - 1];
        for bad in ["", "run_", shorter, &late.as_str().to_uppercase(), &late.as_str().replace("run", "job")]
        {
            assert_eq!(RunId::parse(bad), None, "{bad}");
        }
    }
}
