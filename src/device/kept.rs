//! Are the kernels that were kept those that were compiled? A bit of one that is another would change numbers silently.
//!
//! CubeCL only ever appends to its files, and several processes may do so at once. So the list in the folder says of each
//! file how long it was and the SHA-256 of that much of it; what came behind is in the next list.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// The list: digest, length and name of each file, and last the digest of these lines.
const LIST: &str = "kept.txt";
/// More than some thousand files' lines.
const LIST_BYTES_MAX: u64 = 1 << 20;

/// Files below these folders that are not what they were when the list was written, or shorter. All of them where the list
/// itself is damaged; none where there is no list.
pub fn damaged(folder: &Path, inside: &[&str]) -> Vec<PathBuf> {
    let mut text = String::new();
    let read = File::open(folder.join(LIST)).and_then(|file| file.take(LIST_BYTES_MAX).read_to_string(&mut text));
    if read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Vec::new();
    }
    let Some(files) = read.ok().and_then(|_| parsed(&text)) else { return all(folder, inside) };
    let changed = |(digest, length, name): &(&str, u64, &str)| match begin_of(&folder.join(name), *length) {
        // What is gone is compiled again.
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        found => found.is_ok_and(|found| found != *digest),
    };
    files.iter().filter(|file| changed(file)).map(|(_, _, name)| folder.join(name)).collect()
}

/// Writes the list of what is there now.
///
/// # Errors
/// It cannot be read or written.
pub fn note(folder: &Path, inside: &[&str]) -> io::Result<()> {
    let mut text = String::new();
    for path in all(folder, inside) {
        let (Ok(name), length) = (path.strip_prefix(folder), fs::metadata(&path)?.len()) else { continue };
        let digest = begin_of(&path, length)?;
        writeln!(text, "{digest} {length} {}", name.display()).map_err(io::Error::other)?;
    }
    let check = hexadecimal(Sha256::digest(&text));
    let mut file = tempfile::Builder::new().prefix(".kept").tempfile_in(folder)?;
    file.write_all(text.as_bytes()).and_then(|()| file.write_all(format!("{check}\n").as_bytes()))?;
    file.persist(folder.join(LIST)).map(drop).map_err(|error| error.error)
}

fn parsed(text: &str) -> Option<Vec<(&str, u64, &str)>> {
    let before_check = text.strip_suffix('\n')?.rfind('\n').map_or(0, |at| at + 1);
    let (lines, check) = text.split_at(before_check);
    if hexadecimal(Sha256::digest(lines)) != check.trim_end() {
        return None;
    }
    lines
        .lines()
        .map(|line| {
            let mut parts = line.splitn(3, ' ');
            Some((parts.next()?, parts.next()?.parse().ok()?, parts.next()?))
        })
        .collect()
}

/// All files below these folders but CubeCL's locks, sorted.
fn all(folder: &Path, inside: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    inside.iter().for_each(|name| super::kernels::below(&folder.join(name), &mut found));
    found.retain(|path| path.extension().is_none_or(|extension| extension != "lock"));
    found.sort();
    found
}

/// SHA-256 of the first so many bytes, or of all where there are fewer.
fn begin_of(path: &Path, length: u64) -> io::Result<String> {
    let (mut file, mut hasher, mut block) = (File::open(path)?.take(length), Sha256::new(), vec![0; 64 * 1024]);
    loop {
        match file.read(&mut block)? {
            0 => return Ok(hexadecimal(hasher.finalize())),
            count => hasher.update(&block[..count]),
        }
    }
}

fn hexadecimal(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_appended_is_fine_and_every_flipped_bit_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let put = |name: &str, bytes: &[u8]| {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            crate::results::write::replace(&at(name), bytes).unwrap();
        };
        let inside = ["cuda", "tuning"];
        let look = || damaged(folder.path(), &inside);
        put("cuda/ptx/chunk0.cbor", b"kernel");
        put("cuda/ptx/toc.json.lock", b"");
        put("tuning/a b.json.log", b"fast\n");
        assert!(look().is_empty(), "there is no list");
        note(folder.path(), &inside).unwrap();
        put("cuda/ptx/chunk0.cbor", b"kernel and another");
        put("cuda/ptx/chunk1.cbor", b"new");
        fs::remove_file(at("cuda/ptx/toc.json.lock")).unwrap();
        assert!(look().is_empty());
        for bit in 0..6 * 8 {
            let mut bytes = b"kernel and another".to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            put("cuda/ptx/chunk0.cbor", &bytes);
            assert_eq!(look(), [at("cuda/ptx/chunk0.cbor")]);
        }
        put("cuda/ptx/chunk0.cbor", b"kern");
        assert_eq!(look(), [at("cuda/ptx/chunk0.cbor")], "cut off");
        fs::remove_file(at("cuda/ptx/chunk0.cbor")).unwrap();
        assert!(look().is_empty(), "compiled again");
        let list = fs::read(at(LIST)).unwrap();
        for bit in 0..list.len() * 8 {
            let mut bytes = list.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            put(LIST, &bytes);
            assert_eq!(look().len(), 2, "bit {bit} of the list: nothing is believed");
        }
    }
}
