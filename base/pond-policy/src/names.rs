//! One table of names per enum: the variant, its printed name and its parser come from the same line, so dispatch and
//! worker cannot hold different lists.

/// Declares an enum whose every variant has exactly one stable name.
macro_rules! named_enum {
    (
        $(#[$meta:meta])*
        pub enum $type:ident { $( $(#[$variant_meta:meta])* $variant:ident => $name:literal ),+ $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $type { $( $(#[$variant_meta])* $variant ),+ }

        impl $type {
            pub const ALL: &'static [Self] = &[$( Self::$variant ),+];
            pub const NAMES: &'static [&'static str] = &[$( $name ),+];

            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $name ),+ }
            }

            pub fn from_name(name: &str) -> Option<Self> {
                match name { $( $name => Some(Self::$variant), )+ _ => None }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

#[cfg(test)]
mod tests {
    /// Every name leads back to its variant, and no name is used twice.
    macro_rules! round_trips {
        ($($type:ty),+ $(,)?) => { $(
            for (variant, name) in <$type>::ALL.iter().zip(<$type>::NAMES) {
                assert_eq!(variant.name(), *name);
                assert_eq!(<$type>::from_name(name), Some(*variant), "{name}");
            }
            assert_eq!(<$type>::from_name(""), None);
        )+ };
    }

    #[test]
    fn every_name_round_trips() {
        use crate::*;
        round_trips!(
            backend::Backend,
            backend::Strength,
            block::OverrideKey,
            capability::Confidential,
            profile::Profile,
            profile::Filesystem,
            profile::Network,
            profile::Commands,
            profile::Hardening,
            refusal::Code,
            egress::HostWarningCode,
            egress::Preset,
            harness::Agent,
            model::Api,
            model::Auth,
            run::ExecutorKind,
            run::Compare,
            sandboxes::Tool,
            scope::Scope,
            tier::Tier,
        );
    }
}
