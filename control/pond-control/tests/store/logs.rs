//! Output arrives in pieces, from somebody who may lie about all of them.

use pond_control::store::{
    Appended, Chunk, Lease, LogFault, LogPart, LogPiece, MOST_CHUNK, MOST_STREAM, Stream, most_of,
};
use pond_seal::Digest;
use pond_seal::chain::{Chain, Place};

use super::world::{START, World, at, document};

/// Sends pieces as an honest worker does.
struct Sender<'a> {
    world: &'a World,
    lease: &'a Lease,
    stream: Stream,
    next: Appended,
}

impl<'a> Sender<'a> {
    fn new(world: &'a World, lease: &'a Lease, stream: Stream) -> Self {
        let chain = Chain::begin(lease.job.as_str(), lease.epoch, stream).at().head;
        let next = Appended { next_sequence: 0, next_offset: 0, chain };
        Self { world, lease, stream, next }
    }

    fn piece<'b>(&self, bytes: &'b [u8]) -> Chunk<'b> {
        let (sequence, offset) = (self.next.next_sequence, self.next.next_offset);
        let chain = Place { seq: sequence, offset, head: self.next.chain }.link(bytes).head;
        Chunk { stream: self.stream, sequence, offset, bytes, chain }
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<Appended, LogFault> {
        self.next = self.world.store.append_log(self.lease, self.piece(bytes), at(1)).await?.next;
        Ok(self.next)
    }
}

async fn lease(world: &World) -> Lease {
    world.submit(&document(&["a"])).await;
    world.started(&world.worker("w").await, START).await.lease
}

pub(crate) async fn pieces_come_in_order_and_are_chained(world: &World) {
    let lease = lease(world).await;
    let mut out = Sender::new(world, &lease, Stream::Stdout);
    out.send(b"one\n").await.unwrap();
    let second = out.send(b"two\n").await.unwrap();
    assert_eq!((second.next_sequence, second.next_offset), (2, 8));
    Sender::new(world, &lease, Stream::Stderr).send(b"oops").await.unwrap();
    assert_eq!(world.store.log_head(&lease, Stream::Stdout).await.unwrap(), second);
    let piece = |sequence, offset, text: &str| LogPiece { sequence, offset, bytes: text.into() };
    let read = async |from| world.store.log(&lease.job, Stream::Stdout, from, 10).await.unwrap();
    assert_eq!(read(0).await, [piece(0, 0, "one\n"), piece(1, 4, "two\n")]);
    assert_eq!(read(1).await, [piece(1, 4, "two\n")]);
    let errors = world.store.log(&lease.job, Stream::Stderr, 0, 10).await.unwrap();
    assert_eq!(errors, [piece(0, 0, "oops")]);

    let next = out.piece(b"three");
    for wrong in [Chunk { sequence: 3, ..next }, Chunk { offset: 9, ..next }, Chunk { offset: 7, ..next }] {
        let gap = world.store.append_log(&lease, wrong, at(1)).await;
        assert!(matches!(gap, Err(LogFault::Gap(expected)) if expected == second), "{wrong:?}");
    }
    let unchained = Chunk { chain: Digest::of(b"made up"), ..next };
    assert!(matches!(world.store.append_log(&lease, unchained, at(1)).await, Err(LogFault::Chain)));
    out.send(b"three").await.unwrap();
}

pub(crate) async fn a_piece_sent_again_is_the_same_or_refused(world: &World) {
    let lease = lease(world).await;
    let mut out = Sender::new(world, &lease, Stream::Stdout);
    let first = out.piece(b"one");
    out.send(b"one").await.unwrap();
    let head = out.send(b"two").await.unwrap();
    assert_eq!(world.store.append_log(&lease, first, at(1)).await.unwrap().next, head);
    for other in
        [Chunk { bytes: b"One", ..first }, Chunk { offset: 1, ..first }, Chunk { chain: head.chain, ..first }]
    {
        assert!(matches!(world.store.append_log(&lease, other, at(1)).await, Err(LogFault::Conflict)));
    }
    // Sent at once, by a client that gave up waiting.
    let next = out.piece(b"three");
    let send = || world.store.append_log(&lease, next, at(1));
    let answers = tokio::join!(send(), send(), send());
    let answers = [answers.0.unwrap(), answers.1.unwrap(), answers.2.unwrap()];
    assert!(answers.iter().all(|answer| answer.next.next_offset >= 6), "{answers:?}");
    assert_eq!(world.store.log(&lease.job, Stream::Stdout, 0, 10).await.unwrap().len(), 3);
}

pub(crate) async fn caps_hold(world: &World) {
    let lease = lease(world).await;
    let mut out = Sender::new(world, &lease, Stream::Stdout);
    assert!(matches!(out.send(b"").await, Err(LogFault::Size)));
    assert!(matches!(out.send(&vec![0; MOST_CHUNK + 1]).await, Err(LogFault::Size)));
    let piece = vec![b'x'; MOST_CHUNK];
    let pieces = MOST_STREAM / u64::try_from(MOST_CHUNK).unwrap();
    for _ in 0..pieces {
        out.send(&piece).await.unwrap();
    }
    assert!(matches!(out.send(b"x").await, Err(LogFault::StreamFull(MOST_STREAM))));
    assert!(most_of(Stream::Result) > MOST_STREAM, "a packed result has a limit of its own");
    Sender::new(world, &lease, Stream::Stderr).send(b"x").await.unwrap();
}

pub(crate) async fn the_log_of_a_lost_lease_does_not_mix_in(world: &World) {
    let old = lease(world).await;
    Sender::new(world, &old, Stream::Stdout).send(b"half").await.unwrap();
    world.store.expire(at(61)).await.unwrap();
    let new = world.started(&world.worker("next").await, at(62)).await.lease;
    let mut out = Sender::new(world, &new, Stream::Stdout);
    out.send(b"whole").await.unwrap();
    out.send(b" and more").await.unwrap();
    let part = |offset, bytes: &[u8]| LogPart { epoch: new.epoch, offset, bytes: bytes.to_vec() };
    let both = [part(0, b"whole"), part(5, b" and more")];
    for (offset, parts) in [(0, &both[..]), (4, &both[..]), (5, &both[1..]), (14, &[]), (99, &[])] {
        assert_eq!(world.store.log_at(&new.job, Stream::Stdout, offset, 9).await.unwrap(), parts, "{offset}");
    }
    assert!(matches!(Sender::new(world, &old, Stream::Stdout).send(b"x").await, Err(LogFault::Stale)));
    let read = world.store.log(&new.job, Stream::Stdout, 0, 10).await.unwrap();
    assert_eq!(read.first(), Some(&LogPiece { sequence: 0, offset: 0, bytes: b"whole".to_vec() }));
}
