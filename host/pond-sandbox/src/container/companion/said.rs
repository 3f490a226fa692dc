//! The last words of a program: what it printed, as far as somebody may want to know why it ended. Hostile bytes, bounded, never
//! parsed.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::native::Streams;

/// The most that is kept.
const MOST: usize = 4 << 10;

#[derive(Debug, Default)]
pub(super) struct Said {
    kept: Arc<Mutex<Vec<u8>>>,
    listeners: Vec<JoinHandle<()>>,
}

impl Said {
    /// Listens to a program's outputs from now on; it has no input.
    pub(super) fn of(streams: Option<Streams>) -> Self {
        let mut said = Self::default();
        if let Some(Streams { stdin, stdout, stderr }) = streams {
            drop(stdin);
            said.listen(stdout);
            said.listen(stderr);
        }
        said
    }

    /// Without a thread to listen there is nobody who reads, and the program is told so when it writes.
    fn listen(&mut self, output: OwnedFd) {
        let kept = Arc::clone(&self.kept);
        let thread = std::thread::Builder::new().name("listener".to_owned());
        self.listeners.extend(thread.spawn(move || Self::hear(&kept, output)));
    }

    fn hear(kept: &Mutex<Vec<u8>>, output: OwnedFd) {
        let mut output = File::from(output);
        let mut piece = vec![0; 16 << 10];
        while let Ok(length @ 1..) = output.read(&mut piece) {
            let Ok(mut kept) = kept.lock() else { return };
            kept.extend(piece.get(..length).unwrap_or_default());
            let over = kept.len().saturating_sub(MOST);
            kept.drain(..over);
        }
    }

    /// All of it, once the program has ended.
    pub(super) fn text(mut self) -> String {
        for listener in std::mem::take(&mut self.listeners) {
            if let Err(_heard_less) = listener.join() {}
        }
        self.so_far()
    }

    /// What there is by now, without anything that means to be obeyed by a terminal.
    pub(super) fn so_far(&self) -> String {
        let kept = self.kept.lock().map(|kept| kept.clone()).unwrap_or_default();
        let text = String::from_utf8_lossy(&kept).into_owned();
        text.chars().filter(|char| *char == '\n' || !char.is_control()).collect::<String>().trim().to_owned()
    }
}
