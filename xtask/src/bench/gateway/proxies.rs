//! The contenders: pond's gateway and two proxies, each with the same list of allowed hosts and without logs of its own
//! (pond keeps its records: they are part of it). One process each; what it started counts as its own.

use std::fs;
use std::process::Child;

use anyhow::{Context, Result, ensure};

use super::super::census::descendants;
use super::super::driver::Driver;
use super::super::stand::{Stand, read};
use super::world::HOSTS;
use super::worlds::Worlds;

pub(super) const POND: &str = "pond";
pub(super) const DIRECT: &str = "direct";
pub(super) const BROKER: &str = "pond's broker";
const TINYPROXY: &str = "tinyproxy";
const SQUID: &str = "squid";

/// Where pond's broker serves, beside its proxy.
pub(super) const BROKER_PORT: u16 = 3131;

/// Who serves which port, and by which process.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) name: &'static str,
    pub(super) port: u16,
    process: Process,
}

#[derive(Debug)]
enum Process {
    /// Ends with its input.
    Instrument(Driver),
    Peer(Child),
}

#[derive(Debug)]
pub(super) struct Proxies(Vec<Proxy>);

impl Proxies {
    pub(super) fn start(worlds: &mut Worlds<'_>) -> Result<Self> {
        let proxies = Self(vec![pond(worlds, 3128)?, tinyproxy(worlds, 3129)?, squid(worlds, 3130)?]);
        for proxy in proxies.each() {
            worlds.ask(&format!("await {}", proxy.port)).with_context(|| proxy.name)?;
            // The first tunnels fill caches; they are nobody's figure.
            worlds.ask(&format!("verdicts {} 50", proxy.port)).with_context(|| proxy.name)?;
        }
        Ok(proxies)
    }

    pub(super) fn each(&self) -> impl Iterator<Item = &Proxy> {
        self.0.iter()
    }
}

impl Proxy {
    fn pid(&self) -> u32 {
        match &self.process {
            Process::Instrument(driver) => driver.pid(),
            Process::Peer(child) => child.id(),
        }
    }

    /// Processor time so far, in hundredths of a second.
    pub(super) fn ticks(&self) -> Result<u64> {
        self.sum(|pid| {
            let stat = read(&format!("/proc/{pid}/stat"))?;
            let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_ascii_whitespace());
            let times = fields.map(|fields| fields.skip(11).take(2).map(|field| Ok(field.parse::<u64>()?)));
            times.with_context(|| format!("process {pid} has no times"))?.sum::<Result<u64>>()
        })
    }

    pub(super) fn resident_kib(&self) -> Result<u64> {
        self.sum(|pid| {
            let status = read(&format!("/proc/{pid}/status"))?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
            kib.with_context(|| format!("process {pid} has no memory"))
        })
    }

    fn sum(&self, figure: impl Fn(u32) -> Result<u64>) -> Result<u64> {
        descendants(self.pid())?.into_iter().map(figure).sum()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Process::Peer(child) = &mut self.process {
            // One that has ended already is reaped all the same.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn pond(worlds: &Worlds<'_>, port: u16) -> Result<Proxy> {
    let stand = worlds.stand;
    let (program, certificates) = (stand.path("pond"), stand.path(""));
    let ports = [port, BROKER_PORT].map(|port| port.to_string());
    let [proxy, broker] = ports.each_ref().map(String::as_str);
    let words = [&stand.path("gateway"), "gate", &certificates, &program, proxy, broker];
    let mut driver = Driver::start(&worlds.nearby(&words), &stand.log)?;
    ensure!(driver.number()? == 0, "an instrument that is ready says 0");
    Ok(Proxy { name: POND, port, process: Process::Instrument(driver) })
}

/// A thread per tunnel, no cache for addresses.
fn tinyproxy(worlds: &Worlds<'_>, port: u16) -> Result<Proxy> {
    let stand = worlds.stand;
    let filter = write(stand, "tinyproxy.filter", &each_host(|name| name.replace('.', "\\.") + "$"))?;
    let text = format!(
        "Port {port}\nListen 127.0.0.1\nTimeout 600\nMaxClients 12000\nLogLevel Critical\nConnectPort 443\n\
         Filter \"{filter}\"\nFilterDefaultDeny Yes\n"
    );
    let settings = write(stand, "tinyproxy.conf", &text)?;
    let command = worlds.knowing_hosts(&["tinyproxy", "-d", "-c", &settings]);
    Ok(Proxy { name: TINYPROXY, port, process: Process::Peer(command.start(&stand.log)?) })
}

/// One process, nothing cached on disk.
fn squid(worlds: &Worlds<'_>, port: u16) -> Result<Proxy> {
    let stand = worlds.stand;
    let text = format!(
        "http_port 127.0.0.1:{port}\nhosts_file {}\nacl listed dstdomain {}\nacl tls port 443\n\
         http_access allow CONNECT listed tls\nhttp_access deny all\ncache deny all\naccess_log none\n\
         cache_log /dev/null\ncache_store_log none\npid_filename none\nnetdb_filename none\npinger_enable off\n\
         client_db off\nvia off\nforwarded_for delete\ncoredump_dir none\n\
         shutdown_lifetime 0 seconds\n",
        stand.path("hosts"),
        each_host(str::to_owned).replace('\n', " ")
    );
    let settings = write(stand, "squid.conf", &text)?;
    let command = worlds.nearby(&["squid", "-N", "-f", &settings]);
    Ok(Proxy { name: SQUID, port, process: Process::Peer(command.start(&stand.log)?) })
}

fn each_host(line: impl Fn(&str) -> String) -> String {
    HOSTS.iter().map(|host| line(host.name) + "\n").collect()
}

fn write(stand: &Stand, name: &str, text: &str) -> Result<String> {
    let path = stand.path(name);
    fs::write(&path, text)?;
    Ok(path)
}
