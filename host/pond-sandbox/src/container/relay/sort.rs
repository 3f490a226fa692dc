//! What pid 1 says: every whole frame goes to whom it is for, and the job's files into its layer.
//!
//! Zone: host. A frame is hostile; one that is not understood, or that only pond sends, ends the container.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use pond_wire::contained::Kind;
use pond_wire::jail::Report;

use super::super::canary::judge;
use super::super::transfer::TransferFault;
use super::{Relay, RelayFault, Transit, outside};

/// How long pid 1 may take to end once it was told to; what it reported stands.
const FAREWELL: Duration = Duration::from_secs(2);

/// How long pid 1 may take to end the job once it was told to; less than a supervisor waits for a killed job.
const STOP: Duration = Duration::from_secs(3);

/// How long what the job wrote may take to come out, in all and until there is more of it.
const HAND_OVER: Duration = Duration::from_secs(300);
const NEXT_PIECE: Duration = Duration::from_secs(30);

impl Relay {
    /// Gives every whole frame to whom it is for, as long as the streams have room.
    pub(super) fn sort(&mut self, transit: &mut Transit) -> Result<(), RelayFault> {
        while transit.has_room()
            && let Some((kind, payload)) = transit.frames.next()?
        {
            match kind {
                Kind::Stdout => transit.to_stdout = payload,
                Kind::Stderr => transit.to_stderr = payload,
                Kind::Evidence => {
                    let seen = serde_json::from_slice(&payload).map_err(RelayFault::Evidence)?;
                    match outside(self.pid, self.program, &self.nonce, self.first_user) {
                        Ok(outside) => {
                            judge(self.kernel, &seen, &outside)?;
                            transit.evidence = Some((seen, outside));
                            transit.begin();
                        }
                        // Nothing of it begins, then; why it ended is what it says next.
                        Err(_died_meanwhile) if self.is_dead()? => {}
                        Err(fault) => return Err(RelayFault::Relay(fault)),
                    }
                }
                Kind::Kept => self.take_in(&payload, transit)?,
                Kind::Taken => {
                    let told = payload.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                    let taken = usize::try_from(told).unwrap_or(usize::MAX);
                    transit.outstanding = transit.outstanding.saturating_sub(taken);
                }
                Kind::Report
                | Kind::Order
                | Kind::Go
                | Kind::Input
                | Kind::InputEnd
                | Kind::Stop
                | Kind::Size
                | Kind::Leave
                | Kind::ExecStart
                | Kind::ExecInput
                | Kind::ExecInputEnd
                | Kind::ExecSize
                | Kind::ExecSignal
                | Kind::ExecRoom
                | Kind::ExecStdout
                | Kind::ExecStderr
                | Kind::ExecTaken
                | Kind::ExecReport
                | Kind::ExecOver => self.pass_on(Report::decode(&payload)?, transit)?,
            }
            self.flush(transit)?;
        }
        Ok(())
    }

    fn pass_on(&mut self, report: Report, transit: &mut Transit) -> Result<(), RelayFault> {
        let layer = [&self.layer.upper, &self.layer.view].into_iter();
        let descriptors = match report {
            Report::Prepared => layer.chain(&self.terminal).map(AsFd::as_fd).collect(),
            Report::Exited { .. } | Report::Signaled { .. } => {
                transit.is_told = true;
                // While pid 1 waits for a farewell its control groups are there to be read.
                transit.usage = Some(self.groups.usage().map_err(RelayFault::Counters)?);
                if self.incoming.is_some() {
                    transit.handing_over.get_or_insert_with(Instant::now);
                    transit.last_piece.get_or_insert_with(Instant::now);
                } else {
                    transit.say(Kind::Leave, &[]);
                    transit.farewell.get_or_insert_with(Instant::now);
                }
                Vec::new()
            }
            Report::Started
            | Report::Doors
            | Report::Failed { .. }
            | Report::Serving
            | Report::Began
            | Report::Connected => Vec::new(),
        };
        // A supervisor that is gone closes the lifeline, which ends all this.
        if let Some(socket) = &self.report
            && let Err(_gone) = pond_sys::socket::send(socket, &report.encode(), &descriptors)
        {}
        drop(descriptors);
        // Kept here it would never end for whoever reads it.
        self.terminal = self.terminal.take().filter(|_| report != Report::Prepared);
        // The job is dead, by the word of pid 1; only its files are still to come, and nobody has to wait for them here.
        if transit.handing_over.is_some() {
            self.report = None;
        }
        Ok(())
    }

    /// Ends what takes too long.
    pub(super) fn keep_time(&mut self, transit: &mut Transit) -> Result<(), RelayFault> {
        let is_late = |since: Option<Instant>, most| since.is_some_and(|since| since.elapsed() > most);
        let is_handing_over = self.incoming.is_some() && transit.handing_over.is_some();
        if is_handing_over && is_late(transit.handing_over, HAND_OVER) {
            self.lose(TransferFault::TooSlow(HAND_OVER.as_secs()), transit)?;
        } else if is_handing_over && is_late(transit.last_piece, NEXT_PIECE) {
            self.lose(TransferFault::Stalled(NEXT_PIECE.as_secs()), transit)?;
        }
        let has_not_stopped = is_late(transit.stopping, STOP) && transit.handing_over.is_none();
        if has_not_stopped || is_late(transit.farewell, FAREWELL) {
            self.kill()?;
        }
        Ok(())
    }

    /// Nothing of what the job wrote is used; the run stands.
    fn lose(&mut self, fault: TransferFault, transit: &mut Transit) -> Result<(), RelayFault> {
        (self.incoming, transit.lost) = (None, Some(fault));
        self.kill()
    }

    /// More of what the job wrote. Once it is whole, pid 1 may go.
    fn take_in(&mut self, bytes: &[u8], transit: &mut Transit) -> Result<(), RelayFault> {
        let Some(incoming) = self.incoming.as_mut().filter(|_| transit.handing_over.is_some()) else {
            return Ok(());
        };
        transit.last_piece = Some(Instant::now());
        if let Err(fault) = incoming.push(bytes) {
            return self.lose(fault, transit);
        }
        if incoming.is_over() {
            self.incoming = None;
            transit.say(Kind::Leave, &[]);
            transit.farewell.get_or_insert_with(Instant::now);
        }
        Ok(())
    }
}
