//! What the far side's name server says about each name: the truth, a lie, or nothing.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;

/// Every name below this one exists; those without a script of their own have one public address.
pub(crate) const DOMAIN: &str = "pondworld.net";

#[derive(Debug, Clone)]
pub(crate) enum Script {
    Addresses(Vec<IpAddr>),
    Alias(String),
    /// One answer, then the other, then the first again; nobody may keep either.
    Flip(Vec<IpAddr>, Vec<IpAddr>),
    /// One answer to whoever asks first, and the other from then on; nobody may keep either.
    Rebound(Vec<IpAddr>, Vec<IpAddr>),
    /// The truth, after this many milliseconds.
    Late(u64, Vec<IpAddr>),
    NoSuchName,
    ServerFailure,
    Silence,
    /// Says over UDP that the answer is too long, and gives it over TCP.
    TooLongForUdp(Vec<IpAddr>),
    /// Addresses that belong to another name than the one asked for.
    AboutAnother(String, Vec<IpAddr>),
}

/// One record of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Address { owner: String, address: IpAddr, seconds: u32 },
    Alias { owner: String, target: String },
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Records(Vec<Record>),
    Truncated(Vec<Record>),
    NoSuchName,
    ServerFailure,
    Silence,
}

#[derive(Debug, Default)]
pub(crate) struct Zone {
    scripts: HashMap<String, Script>,
    asked: Mutex<HashMap<(String, u16), usize>>,
}

pub(crate) const A: u16 = 1;
pub(crate) const AAAA: u16 = 28;

impl Zone {
    pub(crate) fn new(scripts: Vec<(String, Script)>) -> Self {
        Self { scripts: scripts.into_iter().collect(), asked: Mutex::default() }
    }

    pub(crate) fn answer(&self, name: &str, kind: u16) -> Answer {
        let name = name.to_ascii_lowercase();
        let mut asked = self.asked.lock().unwrap();
        let turn = asked.entry((name.clone(), kind)).or_default();
        *turn += 1;
        let (first, even) = (*turn == 1, turn.is_multiple_of(2));
        drop(asked);
        let records = |addresses: &[IpAddr], seconds| of_kind(&name, addresses, kind, seconds);
        match self.scripts.get(&name) {
            Some(Script::Addresses(addresses)) => Answer::Records(records(addresses, 300)),
            Some(Script::Flip(_, second)) if even => Answer::Records(records(second, 0)),
            Some(Script::Flip(first, _)) => Answer::Records(records(first, 0)),
            Some(Script::Rebound(before, _)) if first => Answer::Records(records(before, 0)),
            Some(Script::Rebound(_, after)) => Answer::Records(records(after, 0)),
            Some(Script::Late(milliseconds, addresses)) => {
                std::thread::sleep(std::time::Duration::from_millis(*milliseconds));
                Answer::Records(records(addresses, 300))
            }
            Some(Script::Alias(_)) => self.follow(&name, kind),
            Some(Script::NoSuchName) => Answer::NoSuchName,
            Some(Script::ServerFailure) => Answer::ServerFailure,
            Some(Script::Silence) => Answer::Silence,
            Some(Script::TooLongForUdp(addresses)) => Answer::Truncated(records(addresses, 300)),
            Some(Script::AboutAnother(other, addresses)) => {
                Answer::Records(of_kind(other, addresses, kind, 300))
            }
            None => self.unscripted(&name, kind),
        }
    }

    fn unscripted(&self, name: &str, kind: u16) -> Answer {
        if name.ends_with(DOMAIN) || self.scripts.is_empty() {
            return Answer::Records(of_kind(name, &[IpAddr::V4(public(name))], kind, 300));
        }
        Answer::NoSuchName
    }

    /// An alias, what it leads to, and so on; a loop goes round a few times, as real ones do.
    fn follow(&self, name: &str, kind: u16) -> Answer {
        let (mut records, mut owner) = (Vec::new(), name.to_owned());
        while let Some(Script::Alias(target)) = self.scripts.get(&owner) {
            records.push(Record::Alias { owner: owner.clone(), target: target.clone() });
            owner.clone_from(target);
            if records.len() == 40 {
                return Answer::Records(records);
            }
        }
        match self.scripts.get(&owner) {
            Some(Script::Addresses(addresses)) => records.extend(of_kind(&owner, addresses, kind, 300)),
            _ => records.extend(of_kind(&owner, &[IpAddr::V4(public(&owner))], kind, 300)),
        }
        Answer::Records(records)
    }
}

/// The public address of a name without a script: its own, and the same in every world.
pub(crate) fn public(name: &str) -> Ipv4Addr {
    let sum = name.bytes().fold(5381_u32, |sum, byte| sum.wrapping_mul(33).wrapping_add(u32::from(byte)));
    let [_, _, third, last] = sum.to_be_bytes();
    // 52.0.0.0/8 is public throughout.
    Ipv4Addr::new(52, sum.to_be_bytes()[1] ^ 0x40, third, last.clamp(1, 254))
}

fn of_kind(owner: &str, addresses: &[IpAddr], kind: u16, seconds: u32) -> Vec<Record> {
    let wanted = addresses.iter().filter(|address| match kind {
        A => address.is_ipv4(),
        AAAA => address.is_ipv6(),
        _ => false,
    });
    wanted.map(|address| Record::Address { owner: owner.to_owned(), address: *address, seconds }).collect()
}
