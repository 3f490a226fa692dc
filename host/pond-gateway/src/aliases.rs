//! Addresses that stand for names in the internet posture: the address a connection was made to says whom it is for, in
//! whichever protocol. Zone: host; the names come from the job. Invariant: a bounded number of names is remembered, the
//! oldest is forgotten first, and an address that stands for none leads nowhere.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use pond_policy::egress::HostName;
use pond_wire::gateway::doors::FIRST_ALIAS;

/// Far more than a client keeps answers for, and a few MiB at most.
const MOST: usize = 1 << 15;

#[derive(Debug, Default)]
pub(crate) struct Aliases(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    places: HashMap<HostName, usize>,
    names: Vec<HostName>,
    /// Whose place is taken next, once all are given.
    oldest: usize,
}

impl Aliases {
    /// The address that stands for `name` from now on.
    pub(crate) fn give(&self, name: &HostName) -> Ipv4Addr {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        address(table.place(name))
    }

    /// The name an address stands for.
    pub(crate) fn name(&self, address: Ipv4Addr) -> Option<HostName> {
        let place = address.to_bits().checked_sub(FIRST_ALIAS.to_bits())?;
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.names.get(usize::try_from(place).ok()?).cloned()
    }
}

impl Table {
    fn place(&mut self, name: &HostName) -> usize {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        let place = if self.names.len() < MOST {
            self.names.push(name.clone());
            self.names.len() - 1
        } else {
            let place = self.oldest;
            self.oldest = (place + 1) % MOST;
            if let Some(former) = self.names.get_mut(place) {
                self.places.remove(&std::mem::replace(former, name.clone()));
            }
            place
        };
        self.places.insert(name.clone(), place);
        place
    }
}

fn address(place: usize) -> Ipv4Addr {
    // Places end long before the block of addresses does.
    Ipv4Addr::from_bits(FIRST_ALIAS.to_bits().saturating_add(u32::try_from(place).unwrap_or(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        HostName::parse(text).unwrap()
    }

    #[test]
    fn a_name_keeps_its_address_and_an_address_its_name() {
        let aliases = Aliases::default();
        let given =
            [aliases.give(&name("a.com")), aliases.give(&name("b.com")), aliases.give(&name("a.com"))];
        assert_eq!(given.map(|address| address.to_string()), ["198.18.0.1", "198.18.0.2", "198.18.0.1"]);
        assert_eq!(aliases.name(given[1]), Some(name("b.com")));
        for nobody in
            ["198.18.0.0", "198.18.0.3", "198.19.255.255", "127.0.0.1", "255.255.255.255", "0.0.0.0"]
        {
            assert_eq!(aliases.name(nobody.parse().unwrap()), None, "{nobody}");
        }
    }

    #[test]
    fn the_oldest_name_makes_room() {
        let aliases = Aliases::default();
        for number in 0..MOST {
            aliases.give(&name(&format!("n{number}.com")));
        }
        assert_eq!(aliases.give(&name("one-more.com")), FIRST_ALIAS);
        assert_eq!(aliases.name(FIRST_ALIAS), Some(name("one-more.com")));
        assert_eq!(aliases.give(&name("n0.com")).to_string(), "198.18.0.2");
        assert_eq!(aliases.0.lock().unwrap().places.len(), MOST);
        let last = address(MOST - 1);
        assert!(last.octets()[..2] == [198, 18], "{last} is outside the block");
    }
}
