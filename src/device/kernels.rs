//! Where is kept what was compiled and tuned for a GPU, so that the next start takes seconds?
//!
//! CubeCL 0.10 keeps both in files that it reads into memory, and neither knows the GPU: code for one does not load on
//! another, and what is fastest on one may not run there at all. So each GPU has a folder of its own, by everything that its
//! kernels depend on; a home that a cluster shares is the normal case. A kill can leave an entry half written at the end of
//! the file of kernels, behind which CubeCL reads nothing: it is cut off before CubeCL opens the file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{Found, Kind, kept};

/// Of CubeCL, whose files these are; a part of their path.
const CUBECL: &str = "0.10.0";
/// What CubeCL has read is held in memory, in about half the bytes: above this the file of kernels is begun anew. Stage 2
/// has some 110 MiB of them for compute capability 9.0.
const KERNELS_BYTES_MAX: u64 = 384 << 20;
/// Less room on the disk than this, and nothing is kept: CubeCL panics where it cannot write.
const DISK_FREE_MIN: u64 = 256 << 20;
/// GPUs (with their drivers and compilers) that have a folder; the one that was not used for longest goes first.
const FOLDERS_MAX: usize = 8;
const TUNED_BYTES_MAX: u64 = 64 << 20;
/// A file that was written so lately may be another process's, in the middle of it.
const LATELY: Duration = Duration::from_secs(10);

/// Where in a GPU's folder CubeCL's files are.
const INSIDE: [&str; 2] = ["cuda", "tuning"];

/// The folder of one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernels {
    folder: PathBuf,
    at_start: u64,
    /// Files that were not as they had been written, and are made anew.
    pub damaged: Vec<PathBuf>,
}

/// How long CubeCL's files are, which it only appends to: others than before mean that something was compiled or tuned in
/// between. Looked at after each step, so that nothing is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    kernels: u64,
    tuned: u64,
}

impl Lengths {
    /// Whether kernels were compiled since then.
    pub fn compiled_since(&self, before: &Self) -> bool {
        self.kernels > before.kernels
    }
}

impl Kernels {
    /// That of a GPU below the cache folder, to count in it; `None` where kernels are not kept by xrun.
    pub fn of(cache: &Path, found: &Found) -> Option<Self> {
        if !matches!(found.kind, Kind::Cuda(_)) {
            return None;
        }
        let parts = [
            found.name.as_str(),
            &found.capability_words().unwrap_or_else(|| "unknown".into()),
            &format!("driver {}", found.driver.as_deref().unwrap_or("unknown")),
            &format!("nvrtc {}", found.compiler.as_deref().unwrap_or("unknown")),
            &format!("cubecl {CUBECL}"),
        ];
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' };
        let name: String = parts.join("-").chars().map(|c| if c == '-' { c } else { plain(c) }).collect();
        let mut kernels = Self { folder: cache.join("kernels").join(name), at_start: 0, damaged: Vec::new() };
        kernels.at_start = kernels.count();
        Some(kernels)
    }

    /// Makes the folder ready for CubeCL: there, writable, whole, and no larger than is good.
    ///
    /// # Errors
    /// Why nothing can be kept there.
    pub fn prepare(&mut self) -> Result<(), String> {
        let failed = |error: io::Error| format!("{}: {error}", self.folder.display());
        fs::create_dir_all(&self.folder).map_err(failed)?;
        // Also says that the folder was used.
        tempfile::Builder::new().prefix(".used").tempfile_in(&self.folder).map_err(failed)?;
        if free_on_disk(&self.folder).is_some_and(|free| free < DISK_FREE_MIN) {
            return Err(format!("{}: the disk is nearly full", self.folder.display()));
        }
        self.damaged = kept::damaged(&self.folder, &INSIDE);
        for file in &self.damaged {
            // A table of contents and the kernels that it leads to go together.
            match file.starts_with(self.compiled()) && self.compiled().exists() {
                true => fs::remove_dir_all(self.compiled()).map_err(failed)?,
                false if file.exists() => fs::remove_file(file).map_err(failed)?,
                false => {}
            }
        }
        let kernels = self.compiled().join("chunk0.cbor");
        match fs::metadata(&kernels) {
            Ok(file) if file.len() > KERNELS_BYTES_MAX => fs::remove_dir_all(self.compiled()).map_err(failed)?,
            _ => mend(&kernels).map_err(failed)?,
        }
        kept::note(&self.folder, &INSIDE).map_err(failed)?;
        forget_oldest(self.folder.parent().unwrap_or(&self.folder));
        self.at_start = self.count();
        Ok(())
    }

    /// The folder of this GPU.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What was tuned, to be compared: the lines of CubeCL's files in their order. At most 64 MiB of them.
    pub fn tuned(&self) -> Vec<Vec<u8>> {
        let mut files = Vec::new();
        below(&self.folder.join("tuning"), &mut files);
        files.sort();
        let mut room = TUNED_BYTES_MAX;
        files.retain(|file| {
            let bytes = fs::metadata(file).map_or(0, |file| file.len());
            room = room.saturating_sub(bytes);
            room > 0
        });
        files.iter().filter_map(|file| fs::read(file).ok()).collect()
    }

    /// How much is kept now.
    pub fn lengths(&self) -> Lengths {
        let mut files = Vec::new();
        below(&self.folder.join("tuning"), &mut files);
        let length = |file: &Path| fs::metadata(file).map_or(0, |file| file.len());
        Lengths { kernels: length(&self.contents()), tuned: files.iter().map(|file| length(file)).sum() }
    }

    /// Forgets what was tuned, so that the next start tunes anew. Kernels stay.
    pub fn forget_tuning(&self) {
        // What cannot be removed is still there for the next start, which then says the same again.
        let _ = fs::remove_dir_all(self.folder.join("tuning"));
    }

    /// Kernels that were compiled since it was opened, by this process and by others for the same GPU.
    pub fn new_ones(&self) -> u64 {
        self.count().saturating_sub(self.at_start)
    }

    /// Where CubeCL puts kernels.
    fn compiled(&self) -> PathBuf {
        self.folder.join("cuda").join(CUBECL).join("ptx")
    }

    /// CubeCL's table of contents.
    fn contents(&self) -> PathBuf {
        self.compiled().join("toc.json.log")
    }

    /// Kernels that are kept: lines of the table of contents.
    fn count(&self) -> u64 {
        let text = fs::read(self.contents()).unwrap_or_default();
        text.iter().filter(|byte| **byte == b'\n').count() as u64
    }
}

/// All files in a folder and in those below it, in no order; none where it cannot be read.
pub fn below(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => below(&path, into),
            path => into.push(path),
        }
    }
}

fn free_on_disk(folder: &Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(folder.as_os_str().as_bytes()).ok()?;
    // SAFETY: a struct of numbers may be zero.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a C string, and room for the answer.
    let answered = unsafe { libc::statvfs(path.as_ptr(), &raw mut found) } == 0;
    answered.then(|| found.f_bavail as u64 * found.f_frsize as u64)
}

/// Cuts off an entry that was not written to its end.
fn mend(path: &Path) -> io::Result<()> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let whole = whole_items(&bytes);
    let lately = fs::metadata(path)?.modified()?.elapsed().is_ok_and(|age| age < LATELY);
    if whole == bytes.len() || lately {
        return Ok(());
    }
    fs::OpenOptions::new().write(true).open(path)?.set_len(whole as u64)
}

/// How many bytes from the beginning are whole items of CBOR (RFC 8949).
fn whole_items(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(end) = item_end(bytes, at) {
        at = end;
    }
    at
}

/// Where the item that begins at `at` ends; `None` if it is not whole, or none that CubeCL writes.
fn item_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    const DEPTH_MAX: usize = 16;
    // Items that are still to come, of each array and map that is open.
    let mut open = vec![1u64];
    while let Some(left) = open.last_mut() {
        if *left == 0 {
            open.pop();
            continue;
        }
        *left -= 1;
        let first = *bytes.get(at)?;
        at += 1;
        let value = match first & 31 {
            small @ 0..=23 => u64::from(small),
            long @ 24..=27 => {
                let length = 1usize << (long - 24);
                let digits = bytes.get(at..at.checked_add(length)?)?;
                at += length;
                digits.iter().fold(0, |value, digit| value << 8 | u64::from(*digit))
            }
            // Reserved, or of a length that is not told: CubeCL writes none.
            _ => return None,
        };
        match first >> 5 {
            2 | 3 => at = at.checked_add(usize::try_from(value).ok()?).filter(|end| *end <= bytes.len())?,
            4 => open.push(value),
            5 => open.push(value.checked_mul(2)?),
            6 => open.push(1),
            _ => {}
        }
        if open.len() > DEPTH_MAX {
            return None;
        }
    }
    Some(at)
}

fn forget_oldest(folders: &Path) {
    let mut all: Vec<(SystemTime, PathBuf)> = fs::read_dir(folders)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    all.sort();
    let surplus = all.len().saturating_sub(FOLDERS_MAX);
    for (_, folder) in &all[..surplus] {
        let _ = fs::remove_dir_all(folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(name: &str, capability: u32) -> Found {
        Found {
            kind: Kind::Cuda(0),
            name: name.into(),
            driver: Some("580.95".into()),
            memory: None,
            free: None,
            driver_number: None,
            capability: Some(capability),
            compiler: Some("13.0".into()),
        }
    }

    fn write(path: &Path, bytes: &[u8]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        crate::results::write::replace(path, bytes).unwrap();
    }

    /// An entry as CubeCL writes it: a map of a key, and a value of a name, a size and numbers.
    fn entry(numbers: usize) -> Vec<u8> {
        let mut bytes = b"\xa2\x63key\x78\x20".to_vec();
        bytes.extend([b'k'; 32]);
        bytes.extend(b"\x65value\xa3\x64name\x61x\x64size\x19\x04\x00\x63ptx\x9a");
        bytes.extend((numbers as u32).to_be_bytes());
        bytes.extend([0x18, 0x2e].repeat(numbers));
        bytes
    }

    #[test]
    fn each_gpu_driver_and_compiler_has_a_folder_of_its_own() {
        let cache = Path::new("/cache");
        let of = |found: &Found| Kernels::of(cache, found).unwrap().folder().to_owned();
        let h100 = of(&gpu("NVIDIA H100 80GB HBM3", 90));
        let name = "NVIDIA_H100_80GB_HBM3-9.0-driver_580.95-nvrtc_13.0-cubecl_0.10.0";
        assert_eq!(h100, cache.join("kernels").join(name));
        let others = [
            gpu("NVIDIA A100", 90),
            gpu("NVIDIA H100 80GB HBM3", 80),
            Found { driver: Some("570".into()), ..gpu("NVIDIA H100 80GB HBM3", 90) },
            Found { compiler: Some("12.8".into()), ..gpu("NVIDIA H100 80GB HBM3", 90) },
        ];
        assert!(others.iter().all(|other| of(other) != h100));
        assert_eq!(of(&gpu("../../x y", 90)).parent(), h100.parent(), "a name is no path");
        assert_eq!(Kernels::of(cache, &Found { kind: Kind::Cpu, ..gpu("", 0) }), None);
    }

    #[test]
    fn an_entry_that_a_kill_left_half_written_is_cut_off() {
        let whole = [entry(300), entry(7)].concat();
        assert_eq!(whole_items(&whole), whole.len());
        for end in [whole.len() - 1, whole.len() - 20, entry(300).len() + 1] {
            assert_eq!(whole_items(&whole[..end]), entry(300).len(), "{end} bytes");
        }
        assert_eq!(whole_items(b"\xff\xff\xff"), 0);
        assert_eq!(whole_items(&[0x9b, 255, 255, 255, 255, 255, 255, 255, 255]), 0, "a length that nothing has");
        let folder = tempfile::tempdir().unwrap();
        let mut kernels = Kernels::of(folder.path(), &gpu("A", 90)).unwrap();
        let file = kernels.compiled().join("chunk0.cbor");
        write(&file, &whole[..whole.len() - 1]);
        kernels.prepare().unwrap();
        assert_eq!(fs::read(&file).unwrap().len(), whole.len() - 1, "somebody may be writing it");
        let earlier = SystemTime::now() - 2 * LATELY;
        fs::File::options().append(true).open(&file).unwrap().set_modified(earlier).unwrap();
        kernels.prepare().unwrap();
        assert_eq!(fs::read(&file).unwrap(), entry(300));
    }

    #[test]
    fn kernels_of_which_a_bit_is_another_are_compiled_anew() {
        let folder = tempfile::tempdir().unwrap();
        let mut kernels = Kernels::of(folder.path(), &gpu("A", 90)).unwrap();
        let (file, contents) = (kernels.compiled().join("chunk0.cbor"), kernels.compiled().join("toc.json.log"));
        let tuned = kernels.folder().join("tuning/matmul.json.log");
        let put = |kernel: &[u8]| {
            write(&file, kernel);
            write(&contents, b"{}\n");
            write(&tuned, b"fast\n");
        };
        put(&entry(7));
        kernels.prepare().unwrap();
        put(&[entry(7), entry(3)].concat());
        kernels.prepare().unwrap();
        assert!(kernels.damaged.is_empty() && file.exists(), "another process compiled one more");
        let mut changed = [entry(7), entry(3)].concat();
        *changed.last_mut().unwrap() ^= 1;
        put(&changed);
        kernels.prepare().unwrap();
        assert_eq!(kernels.damaged, std::slice::from_ref(&file));
        assert!(!file.exists() && !contents.exists() && tuned.exists());
        put(&entry(7));
        kernels.prepare().unwrap();
        assert!(kernels.damaged.is_empty());
        write(&tuned, b"fasu\n");
        kernels.prepare().unwrap();
        assert!(!tuned.exists() && file.exists());
    }

    #[test]
    fn new_kernels_are_counted_and_a_file_that_is_too_large_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let mut kernels = Kernels::of(folder.path(), &gpu("A", 90)).unwrap();
        let contents = kernels.compiled().join("toc.json.log");
        write(&contents, b"{}\n{}\n");
        kernels.prepare().unwrap();
        assert_eq!(kernels.new_ones(), 0);
        write(&contents, b"{}\n{}\n{}\n{}\n{}\n");
        assert_eq!(kernels.new_ones(), 3);
        let file = kernels.compiled().join("chunk0.cbor");
        write(&file, &[]);
        fs::File::options().append(true).open(&file).unwrap().set_len(KERNELS_BYTES_MAX + 1).unwrap();
        kernels.prepare().unwrap();
        assert!(!file.exists() && kernels.new_ones() == 0);
    }

    #[test]
    fn a_folder_that_cannot_be_made_says_why_and_old_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("kernels"), b"a file");
        let mut kernels = Kernels::of(folder.path(), &gpu("A", 90)).unwrap();
        assert!(kernels.prepare().unwrap_err().contains("/kernels/A-9.0"));
        let folder = tempfile::tempdir().unwrap();
        for number in 0..=FOLDERS_MAX {
            Kernels::of(folder.path(), &gpu(&format!("GPU {number}"), 90)).unwrap().prepare().unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(fs::read_dir(folder.path().join("kernels")).unwrap().count(), FOLDERS_MAX);
        assert!(!folder.path().join("kernels/GPU_0-9.0-driver_580.95-nvrtc_13.0-cubecl_0.10.0").exists());
    }
}
