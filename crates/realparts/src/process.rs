//! One child process that cannot outlive its owner: it is ended when dropped, and the kernel ends it when this process dies in any way.
//! The latter is the parent-death signal, set by `setpriv` between fork and exec, because setting it here would take unsafe code.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::Error;

/// A running program with its log in a file.
#[derive(Debug)]
pub struct Guarded {
    pub(crate) name: String,
    log: PathBuf,
    pid: u32,
    child: Mutex<Child>,
    /// Its end tells the keeper thread that it may go.
    _keeper: mpsc::Sender<()>,
}

impl Guarded {
    /// Starts a program in a folder, where its log is then too.
    pub fn start(name: &str, program: &Path, arguments: &[String], folder: &Path) -> Result<Self, Error> {
        let log = folder.join(format!("{name}.log"));
        let output = File::create(&log).map_err(Error::file(&log))?;
        let errors = output.try_clone().map_err(Error::file(&log))?;
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors);
        let (keeper, released) = mpsc::channel::<()>();
        let child = spawn_from_lasting_thread(command, released).map_err(|source| Error::Spawn {
            program: format!("setpriv (for {name})"),
            source,
            help: "install util-linux 2.33 or newer",
        })?;
        Ok(Self {
            name: name.to_owned(),
            log,
            pid: child.id(),
            child: Mutex::new(child),
            _keeper: keeper,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.child
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .try_wait()
            .ok()
            .flatten()
    }

    /// The last lines of its log.
    pub fn log_tail(&self, lines: usize) -> String {
        let text = String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Asks it to end, then makes it.
    pub fn end(&self, grace: Duration) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Instant::now() + grace;
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw)
            && matches!(child.try_wait(), Ok(None))
        {
            // A failure means that it is gone already, which the loop below sees.
            let _ = kill_process(pid, Signal::TERM);
        }
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

/// The kernel sends the parent-death signal when the *thread* that forked goes, and a test's thread goes long before a server that several
/// tests share: so the fork happens in a thread that lives as long as the child is wanted.
fn spawn_from_lasting_thread(mut command: Command, released: mpsc::Receiver<()>) -> io::Result<Child> {
    let (report, started) = mpsc::channel();
    thread::Builder::new()
        .name("realparts-keeper".to_owned())
        .spawn(move || {
            let _ = report.send(command.spawn());
            let _ = released.recv();
        })?;
    started.recv().map_err(io::Error::other)?
}
