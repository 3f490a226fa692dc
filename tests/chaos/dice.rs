//! Chance that can be had again: everything a round does follows from one number.

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// For something of its own; what it throws does not depend on how often others do.
    pub(crate) fn apart(&mut self) -> Self {
        Self(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `least` up to and without `most`.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most - least)
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.between(0, 100) < chance
    }

    pub(crate) fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        let count = u64::try_from(of.len()).unwrap();
        of[usize::try_from(self.between(0, count)).unwrap()]
    }
}
