//! Calls of one kind that arrive while others of it are under way, asked together when those are over: one way to the database, one
//! commit, for all of them. Whoever comes while nothing is under way asks at once; but first whatever else this process could do at that
//! moment gets its turn, which in a crowd brings along nearly everybody, and costs one who is alone nothing.
//!
//! Invariants: whoever asks for others is one of them, and there is never more than one; when it goes away in the middle, the next
//! one takes over, and those it asked for get no answer. No answer is never a refusal: whoever gets none asks by itself, and every
//! call that comes through here may be asked twice.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Questions that are asked together.
const MOST_TOGETHER: usize = 64;

pub(super) struct Gather<Q, A>(Arc<Line<Q, A>>);

struct Line<Q, A>(Mutex<Waiting<Q, A>>);

struct Waiting<Q, A> {
    /// Somebody asks.
    busy: bool,
    queue: VecDeque<(Q, oneshot::Sender<Turn<Q, A>>)>,
}

/// What somebody who waits hears.
enum Turn<Q, A> {
    Answer(Option<A>),
    /// It is its turn to ask, for itself and for all who wait.
    Ask(Q, Lead<Q, A>),
}

/// Where somebody who waits hears of it.
type Place<Q, A> = oneshot::Receiver<Turn<Q, A>>;

/// The right to ask. Whoever lets it go gives it to the next.
struct Lead<Q, A>(Option<Arc<Line<Q, A>>>);

impl<Q, A> Default for Gather<Q, A> {
    fn default() -> Self {
        Self(Arc::new(Line(Mutex::new(Waiting { busy: false, queue: VecDeque::new() }))))
    }
}

impl<Q, A> Gather<Q, A> {
    /// `together` answers questions in their order, those that it cannot answer with nothing.
    pub(super) async fn ask(
        &self,
        question: Q,
        together: impl AsyncFnOnce(&[Q]) -> Vec<Option<A>>,
    ) -> Option<A> {
        let (question, lead) = match self.queue(question) {
            Ok(asking) => asking,
            Err(turn) => match turn.await.ok()? {
                Turn::Answer(answer) => return answer,
                Turn::Ask(question, lead) => (question, lead),
            },
        };
        tokio::task::yield_now().await;
        let (mut questions, mut waiting) = (vec![question], Vec::new());
        {
            let mut line = self.0.lock();
            let more = line.queue.len().min(MOST_TOGETHER - 1);
            for (question, turn) in line.queue.drain(..more) {
                questions.push(question);
                waiting.push(turn);
            }
        }
        let mut answers = together(&questions).await.into_iter();
        let own = answers.next().flatten();
        for turn in waiting {
            // One that went away does not want to know.
            if let Err(_unheard) = turn.send(Turn::Answer(answers.next().flatten())) {}
        }
        drop(lead);
        own
    }

    /// The right to ask, or a place in the line.
    fn queue(&self, question: Q) -> Result<(Q, Lead<Q, A>), Place<Q, A>> {
        let mut line = self.0.lock();
        if !line.busy {
            line.busy = true;
            return Ok((question, Lead(Some(Arc::clone(&self.0)))));
        }
        let (sender, receiver) = oneshot::channel();
        line.queue.push_back((question, sender));
        Err(receiver)
    }
}

impl<Q, A> Line<Q, A> {
    fn lock(&self) -> MutexGuard<'_, Waiting<Q, A>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q, A> Drop for Lead<Q, A> {
    fn drop(&mut self) {
        let Some(line) = self.0.take() else { return };
        loop {
            let next = {
                let mut waiting = line.lock();
                waiting.busy = !waiting.queue.is_empty();
                waiting.queue.pop_front()
            };
            let Some((question, turn)) = next else { return };
            match turn.send(Turn::Ask(question, Lead(Some(Arc::clone(&line))))) {
                // It passes the right on should it go away before it heard.
                Ok(()) => return,
                Err(Turn::Ask(_, mut lead)) => lead.0 = None,
                Err(Turn::Answer(_)) => {}
            }
        }
    }
}

impl<Q, A> fmt::Debug for Gather<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.0.lock();
        f.debug_struct("Gather").field("busy", &line.busy).field("waiting", &line.queue.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use tokio::sync::Semaphore;

    use super::*;

    /// As far as it comes by itself: who asks lets others go first, once.
    fn once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        let context = &mut Context::from_waker(Waker::noop());
        match future.as_mut().poll(context) {
            Poll::Pending => future.poll(context),
            ready @ Poll::Ready(_) => ready,
        }
    }

    /// Doubles, and says how many were asked together; waits for leave first. Nothing for odd numbers.
    async fn double(leave: &Semaphore, numbers: &[u32]) -> Vec<Option<(u32, usize)>> {
        leave.acquire().await.unwrap().forget();
        numbers.iter().map(|number| (number % 2 == 0).then_some((number * 2, numbers.len()))).collect()
    }

    #[test]
    fn who_comes_meanwhile_is_asked_together_and_hears_its_own_answer() {
        let (gather, leave) = (Gather::default(), Semaphore::new(0));
        let ask = |number| gather.ask(number, async |numbers: &[u32]| double(&leave, numbers).await);
        let (mut first, mut second, mut third, mut odd) =
            (pin!(ask(2)), pin!(ask(4)), pin!(ask(6)), pin!(ask(7)));
        assert!(once(first.as_mut()).is_pending() && once(second.as_mut()).is_pending());
        assert!(once(third.as_mut()).is_pending() && once(odd.as_mut()).is_pending());
        leave.add_permits(2);
        assert_eq!(once(first), Poll::Ready(Some((4, 1))), "nobody was there when it began");
        assert_eq!(once(second), Poll::Ready(Some((8, 3))));
        assert_eq!(once(third), Poll::Ready(Some((12, 3))));
        assert_eq!(once(odd), Poll::Ready(None));
        leave.add_permits(1);
        assert_eq!(once(pin!(ask(8))), Poll::Ready(Some((16, 1))), "nobody asks any more");
    }

    #[test]
    fn who_goes_away_keeps_nobody_waiting() {
        let (gather, leave) = (Gather::default(), Semaphore::new(0));
        let ask = |number| gather.ask(number, async |numbers: &[u32]| double(&leave, numbers).await);
        let mut last = Box::pin(ask(8));
        {
            let (mut first, mut second) = (pin!(ask(2)), pin!(ask(4)));
            assert!(once(first.as_mut()).is_pending() && once(second.as_mut()).is_pending());
            assert!(once(last.as_mut()).is_pending());
            // The first goes away in the middle, the second with the right to ask and before it knew.
        }
        leave.add_permits(1);
        assert_eq!(once(last.as_mut()), Poll::Ready(Some((16, 1))));
        let mut leader = Box::pin(ask(2));
        let mut led = Box::pin(ask(4));
        assert!(once(leader.as_mut()).is_pending() && once(led.as_mut()).is_pending());
        let mut next = Box::pin(ask(6));
        leave.add_permits(1);
        assert_eq!(once(leader.as_mut()), Poll::Ready(Some((4, 1))));
        assert!(once(led.as_mut()).is_pending() && once(next.as_mut()).is_pending());
        drop(led);
        leave.add_permits(1);
        assert_eq!(once(next.as_mut()), Poll::Ready(Some((12, 1))), "it asks for itself");
    }
}
