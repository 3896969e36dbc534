//! The operating system of a host, replaced as a whole: the new one is written beside the running one, and runs after a restart. How, depends on what
//! the host is made with, and that is looked at, never assumed: behind one port stand Elemental, and a pair of slots between which a boot
//! chooser decides (`slots`).

mod elemental;
pub mod slots;

use crate::host::{Answer, Host, HostError, UnitOrder};
use elemental::Elemental;
use slots::Slots;

/// How long until the restart: the kubelet tells how the task ended meanwhile.
const RESTART_AFTER: u32 = 30;
const RESTART_SERVICE: &str = "/run/systemd/system/afloat-hci-restart.service";
const RESTART_TIMER: &str = "/run/systemd/system/afloat-hci-restart.timer";
/// A system that is tried has to be well so often in a row.
const WELL_IN_A_ROW: u32 = 3;
/// How often one that is tried is looked at before it is given up.
const MOST_LOOKS: u32 = 120;
/// Seconds from one look to the next.
pub const LOOK_EVERY: u64 = 5;

/// Who works, and where.
#[derive(Clone, Copy, Debug)]
pub struct Errand<'a> {
    /// Names this attempt: what a job of an earlier one said is not taken for it.
    pub run: &'a str,
    /// The name of the machine's Node.
    pub node: &'a str,
}

/// How it is with a system that boots for the first time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Trial {
    /// None is tried.
    None,
    Well,
    /// What is not well.
    Unwell(String),
}

/// The systems of a host: the one that runs, and how another one comes to be. Everything can be done again without harm, also after a power loss at any
/// moment.
pub trait Systems {
    /// The file of the release that a system is made from.
    fn image(&self) -> &'static str;
    /// Whether its checksum has to lie beside it, as [`checksum_of`] names it.
    fn wants_checksum(&self) -> bool;
    /// The checksums of images that need not be brought, as their systems are there.
    fn present(&self, host: &mut dyn Host) -> Answer<Vec<String>>;
    /// Installs what was brought, to boot next, and says what was done. The system that runs stays beside it.
    fn install(&self, host: &mut dyn Host, errand: &Errand<'_>) -> Answer<String>;
    /// Looks at a system that is tried.
    fn trial(&self, host: &mut dyn Host, errand: &Errand<'_>) -> Answer<Trial>;
    /// The system that is tried stays.
    fn keep(&self, host: &mut dyn Host) -> Answer<()>;
    /// The system that is tried goes, with the next boot, for this reason.
    fn give_up(&self, host: &mut dyn Host, reason: &str) -> Answer<()>;
    /// Goes back to a system that is there; says what boots next, or nothing where it runs already.
    fn put_back(&self, host: &mut dyn Host, errand: &Errand<'_>, to: &str) -> Answer<Option<String>>;
}

/// Where the checksum of an image lies: beside it, in the form of `sha512sum`.
pub fn checksum_of(image: &str) -> String {
    format!("{image}.sha512")
}

/// What a host is made with.
pub fn of(host: &mut dyn Host) -> Answer<&'static dyn Systems> {
    match (elemental::is_there(host), slots::are_there(host)?) {
        (true, false) => Ok(&Elemental),
        (false, true) => Ok(&Slots),
        (false, false) => Err(cannot(
            "replace",
            "the operating system",
            format!(
                "this machine has neither Elemental's state ({}) nor slots with a boot chooser ({}): its system cannot be replaced as a \
                 whole",
                elemental::STATE,
                slots::DEFAULT
            ),
        )),
        (true, true) => Err(cannot(
            "replace",
            "the operating system",
            format!(
                "this machine has both Elemental's state ({}) and slots with a boot chooser ({}), and only one of them boots it: remove the \
                 other",
                elemental::STATE,
                slots::DEFAULT
            ),
        )),
    }
}

/// What becomes of a system that is tried, look by look.
#[derive(Debug, Default)]
pub struct Judge {
    looks: u32,
    well: u32,
}

/// What a look came to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// None is tried, so nothing is to be done.
    Nothing,
    /// It is looked at again after [`LOOK_EVERY`].
    Wait,
    Keep,
    /// It had its time, and this was wrong at the end of it.
    GiveUp(String),
}

impl Judge {
    /// Once is chance: a system is kept that was well several times in a row. One that cannot be looked at is not well.
    pub fn hears(&mut self, trial: Answer<Trial>) -> Verdict {
        self.looks += 1;
        let wrong = match trial {
            Ok(Trial::None) => return Verdict::Nothing,
            Ok(Trial::Well) => {
                self.well += 1;
                if self.well >= WELL_IN_A_ROW {
                    return Verdict::Keep;
                }
                "it was not well for long enough".to_owned()
            }
            Ok(Trial::Unwell(wrong)) => {
                self.well = 0;
                wrong
            }
            Err(error) => {
                self.well = 0;
                error.to_string()
            }
        };
        if self.looks < MOST_LOOKS {
            return Verdict::Wait;
        }
        let minutes = u64::from(MOST_LOOKS) * LOOK_EVERY / 60;
        Verdict::GiveUp(format!(
            "it was not well {minutes} minutes after it had booted: {wrong}"
        ))
    }
}

/// Lets the machine restart by itself. Static pods of before go at that very moment: a kubelet that finds them starts them once more
/// before it hears of the new ones.
pub fn restart_soon(host: &mut dyn Host) -> Answer<()> {
    let service = "[Unit]
Description=Restart with the new system
[Service]
Type=oneshot
ExecStart=-/usr/bin/find /var/lib/rancher/rke2/agent/pod-manifests -type f -delete
ExecStart=/usr/bin/systemctl reboot
";
    let timer = format!(
        "[Unit]\nDescription=Restart with the new system, soon\n[Timer]\nOnActiveSec={RESTART_AFTER}s\nAccuracySec=1s\n"
    );
    host.write(RESTART_SERVICE, service.as_bytes(), 0o644)?;
    host.write(RESTART_TIMER, timer.as_bytes(), 0o644)?;
    host.reload_units()?;
    host.order("afloat-hci-restart.timer", UnitOrder::Restart)
}

fn cannot(action: &'static str, object: &str, message: String) -> HostError {
    HostError::Failed {
        action,
        object: object.to_owned(),
        message,
    }
}
