//! Proof that this user created a directory and that the files that name programs are unchanged.
//!
//! A directory may come from elsewhere, and resuming it starts the programs that it names. `creator.hmac` is
//! HMAC-SHA256 of those files under a key that only this user can read. The directory's path is not covered, so it
//! may be moved.

use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rand::TryRng;
use rand::rngs::SysRng;
use sha2::{Digest, Sha256};

use super::log;
use crate::read;
use xrun_core::experiment::Experiment;
use xrun_core::files::{file, layout, write};

/// Contents covered by the record: files of a directory, and texts from other files.
#[derive(Clone, Debug)]
pub struct SignedContents {
    /// Names of the files, covered byte for byte.
    pub files: &'static [&'static str],
    /// Texts, in order.
    pub words: Vec<String>,
}

/// Contents that determine the programs of a run and their working directory.
fn run_contents(run: &Path) -> Option<SignedContents> {
    let manifest = read::manifest(run).ok()?;
    Some(SignedContents { files: &[layout::RESOLVED], words: vec![manifest.run, manifest.working_directory] })
}

/// Checks that this user created the run and that nothing that names its programs was changed.
///
/// # Errors
/// The reason not to start the programs that it names.
pub fn check_run(run: &Path) -> Result<(), String> {
    check(run, run_contents(run))
}

/// Records that this user created the run. On failure the run continues; if it names programs, `log.txt` says so.
pub fn sign_run(run: &Path, experiment: &Experiment) {
    let Some(contents) = run_contents(run) else { return };
    if let (Err(why), true) = (sign(run, &contents), experiment.command().is_some()) {
        log::append(run, &[unsigned_message(&why)]);
    }
}

/// Log message for a directory that could not be signed.
pub fn unsigned_message(why: &str) -> String {
    format!("the directory could not be signed, a later resume will need --allow-command: {why}")
}

/// Checks that this user created the directory and that the signed contents are unchanged; `None` means
/// unreadable contents.
///
/// # Errors
/// The reason not to start the programs that it names.
pub fn check(directory: &Path, contents: Option<SignedContents>) -> Result<(), String> {
    let all = [layout::RESOLVED, layout::MANIFEST, layout::BASE, layout::SWEEP, layout::SLURM];
    check_owner(directory)?;
    all.iter().map(|name| directory.join(name)).filter(|path| path.exists()).try_for_each(|path| check_owner(&path))?;
    let creator = layout::CREATOR;
    let record = match file::bytes(&directory.join(creator), RECORD_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(format!("there is no record that this user created it (`{creator}`)"));
        }
        record => record.unwrap_or_default(),
    };
    let names = contents.as_ref().map_or_else(|| layout::MANIFEST.to_owned(), |contents| contents.files.join(" or "));
    let changed = || format!("`{creator}` does not match: another user created the directory, or {names} was changed");
    let contents = contents.ok_or_else(changed)?;
    let key = key(false).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            "this user has no signing key: no directory was created yet, or the key was lost".to_owned()
        }
        _ => format!("the signing key cannot be used: {error}"),
    })?;
    let expected = expected_record(&key, directory, &contents).map_err(|_| changed())?;
    if record == expected.as_bytes() { Ok(()) } else { Err(changed()) }
}

/// Records that this user created the directory.
///
/// # Errors
/// The reason why the record cannot be written.
pub fn sign(directory: &Path, contents: &SignedContents) -> Result<(), String> {
    let key = key(true).map_err(|error| error.to_string())?;
    let record = expected_record(&key, directory, contents).map_err(|error| error.to_string())?;
    write::replace(&directory.join(layout::CREATOR), record.as_bytes()).map_err(|error| error.to_string())
}

const RECORD_BYTES_MAX: u64 = 1024;
const KEY_BYTES: usize = 32;
/// Maximum size of a file that names programs.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

fn expected_record(key: &[u8; KEY_BYTES], directory: &Path, contents: &SignedContents) -> io::Result<String> {
    let mut message = b"xrun: created by this user, 1".to_vec();
    let mut add = |part: &[u8]| {
        message.extend((part.len() as u64).to_le_bytes());
        message.extend(part);
    };
    for name in contents.files {
        add(name.as_bytes());
        add(&file::bytes(&directory.join(name), FILE_BYTES_MAX)?);
    }
    contents.words.iter().for_each(|word| add(word.as_bytes()));
    let digits: String = hmac(key, &message).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(digits + "\n")
}

/// HMAC-SHA256 (RFC 2104) for keys of at most one block. The crate for it would add two dependencies.
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let pad = |with: u8| {
        let mut block = [with; 64];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().into()
}

/// `$XDG_STATE_HOME/xrun/key`, or `~/.local/state/xrun/key`.
fn key_path() -> io::Result<PathBuf> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|directory| directory.is_absolute());
    let state = named("XDG_STATE_HOME").or_else(|| named("HOME").map(|home| home.join(".local/state")));
    let state = state.ok_or_else(|| io::Error::other("neither XDG_STATE_HOME nor HOME is an absolute path"))?;
    Ok(state.join("xrun").join("key"))
}

/// Reads this user's key; with `make`, creates it if it is missing.
fn key(make: bool) -> io::Result<[u8; KEY_BYTES]> {
    let path = key_path()?;
    let read = match read_key(&path) {
        Err(error) if make && error.kind() == io::ErrorKind::NotFound => make_key(&path).and_then(|()| read_key(&path)),
        read => read,
    };
    read.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn read_key(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let bytes = file::bytes(path, KEY_BYTES as u64)?;
    if !is_private(path)? {
        return Err(io::Error::other(
            "must belong to this user and be readable by its owner only; run `chmod 600` on it, or run as its owner (`sudo` may \
             keep the other user's `HOME`)",
        ));
    }
    bytes.try_into().map_err(|_| {
        io::Error::other(format!("is not a key of {KEY_BYTES} bytes; remove it, and the next run creates a new one"))
    })
}

/// Creates the key. Two concurrent processes get the same one: the first.
fn make_key(path: &Path) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut key = [0; KEY_BYTES];
    SysRng.try_fill_bytes(&mut key).map_err(io::Error::other)?;
    // Private from the start, and visible only when complete.
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(&key)?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => Err(error.error),
        _ => write::sync_directory(directory),
    }
}

fn is_private(path: &Path) -> io::Result<bool> {
    let found = std::fs::metadata(path)?;
    Ok(found.uid() == this_user() && found.mode() & 0o077 == 0)
}

fn check_owner(path: &Path) -> Result<(), String> {
    match std::fs::metadata(path) {
        Ok(found) if found.uid() != this_user() => Err(format!("it belongs to another user (uid {})", found.uid())),
        // An unreadable file is reported where it is read.
        _ => Ok(()),
    }
}

fn this_user() -> u32 {
    // SAFETY: `geteuid` has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test cases 1 and 2.
    #[test]
    fn hmac_agrees_with_rfc_4231() {
        let hex = |key: &[u8], text: &[u8]| hmac(key, text).iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(hex(&[0x0b; 20], b"Hi There"), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
        assert_eq!(
            hex(b"Jefe", b"what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn a_key_is_created_once_and_a_readable_one_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/xrun/key");
        std::thread::scope(|scope| {
            (0..8).for_each(|_| drop(scope.spawn(|| make_key(&path).unwrap())));
        });
        let key = read_key(&path).unwrap();
        make_key(&path).unwrap();
        assert_eq!(read_key(&path).unwrap(), key);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            mode(0o640);
            assert!(read_key(&path).is_err());
            mode(0o600);
        }
        write::replace(&path, b"short").unwrap();
        assert!(read_key(&path).is_err());
    }

    #[test]
    fn a_record_covers_bytes_and_texts_with_their_boundaries() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(layout::RESOLVED);
        let record = |key: u8, words: &[&str]| {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            expected_record(&[key; KEY_BYTES], directory.path(), &SignedContents { files: &[layout::RESOLVED], words })
                .unwrap()
        };
        write::replace(&path, b"one").unwrap();
        let first = record(1, &["ab", "c"]);
        assert_eq!(first, record(1, &["ab", "c"]));
        assert_ne!(first, record(2, &["ab", "c"]));
        assert_ne!(first, record(1, &["a", "bc"]));
        write::replace(&path, b"two").unwrap();
        assert_ne!(first, record(1, &["ab", "c"]));
    }
}
