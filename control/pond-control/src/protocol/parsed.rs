//! Keys that were pinned, as they were read. What a text comes to never changes, and reading one is work: a point is found on its curve,
//! or something is sealed on trial.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Keys that are remembered.
const MOST_KEYS: usize = 4096;

/// By the text that was pinned, whoever it belongs to. What is no key is not remembered.
#[derive(Debug)]
pub(super) struct Parsed<K>(Mutex<HashMap<String, K>>);

impl<K> Default for Parsed<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone> Parsed<K> {
    pub(super) fn of<E>(&self, text: &str, parse: impl FnOnce(&str) -> Result<K, E>) -> Result<K, E> {
        if let Some(key) = self.lock().get(text) {
            return Ok(key.clone());
        }
        let key = parse(text)?;
        let mut keys = self.lock();
        if keys.len() >= MOST_KEYS {
            keys.clear();
        }
        keys.insert(text.to_owned(), key.clone());
        Ok(key)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
