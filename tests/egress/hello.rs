//! TLS hellos byte by byte, right and wrong: real libraries refuse to write most of these.

/// A hello that a server of today answers, with these extensions besides the usual ones.
pub(crate) struct Hello {
    pub(crate) names: Vec<Vec<u8>>,
    /// Offered in `supported_versions`; none leaves the extension out, as old clients do.
    pub(crate) versions: Vec<u16>,
    pub(crate) legacy_version: u16,
    pub(crate) padding: usize,
    pub(crate) encrypted_hello: bool,
}

impl Hello {
    pub(crate) fn to(name: &str) -> Self {
        Self {
            names: vec![name.as_bytes().to_vec()],
            versions: vec![0x0304, 0x0303],
            legacy_version: 0x0303,
            padding: 0,
            encrypted_hello: false,
        }
    }

    /// The handshake message.
    pub(crate) fn message(&self) -> Vec<u8> {
        let mut extensions = Vec::new();
        if !self.names.is_empty() {
            let entry = |name: &Vec<u8>| [&[0][..], &with_length(name)].concat();
            let list: Vec<u8> = self.names.iter().flat_map(entry).collect();
            extensions.push((0, with_length(&list)));
        }
        if !self.versions.is_empty() {
            let list: Vec<u8> = self.versions.iter().flat_map(|version| version.to_be_bytes()).collect();
            extensions.push((43, [&[u8::try_from(list.len()).unwrap()][..], &list].concat()));
        }
        extensions.push((10, with_length(&[0, 29])));
        extensions.push((13, with_length(&[4, 3, 8, 4])));
        extensions.push((51, with_length(&[&[0, 29][..], &with_length(&[9; 32])].concat())));
        if self.encrypted_hello {
            extensions.push((0xFE0D, vec![0, 0, 1, 0, 1, 7, 0, 0, 0, 4, 1, 2, 3, 4]));
        }
        if self.padding > 0 {
            extensions.push((21, vec![0; self.padding]));
        }
        let encode = |(kind, data): &(u16, Vec<u8>)| [&kind.to_be_bytes()[..], &with_length(data)].concat();
        let extensions: Vec<u8> = extensions.iter().flat_map(encode).collect();
        let suites = [0x1301_u16, 0x1303, 0xC02B].map(u16::to_be_bytes).concat();
        let body = [
            &self.legacy_version.to_be_bytes()[..],
            &[7; 32],
            &[32],
            &[8; 32],
            &with_length(&suites),
            &[1, 0],
            &with_length(&extensions),
        ]
        .concat();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[1][..], &length[1..], &body].concat()
    }

    pub(crate) fn record(&self) -> Vec<u8> {
        self.records(16 << 10)
    }

    /// The message cut into records of at most `size` bytes.
    pub(crate) fn records(&self, size: usize) -> Vec<u8> {
        let record = |part: &[u8]| [&[22, 3, 1][..], &with_length(part)].concat();
        self.message().chunks(size).flat_map(record).collect()
    }
}

fn with_length(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}
