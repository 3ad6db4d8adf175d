//! CUDA's run-time compiler (NVRTC) and its headers: where are they, of which version, and what is missing?
//!
//! Kernels are compiled on the machine that runs them. For that CubeCL 0.10 loads NVRTC by name, and gives it the headers
//! in `CUDA_PATH/include`; where the variable is not set it looks in `/usr/local/cuda`, `/opt/cuda`, and `/usr`. Both can
//! come from the toolkit or, without root, from wheels of the Python package index.

use std::ffi::c_int;
use std::fmt;
use std::path::{Path, PathBuf};

use super::headers;
use super::library::Library;
use super::missing::Missing;

/// Names the folder of the toolkit.
pub const ROOT_VARIABLE: &str = "CUDA_PATH";

/// A version of CUDA, such as 13.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 13 of 13.0.
    pub major: u32,
    /// 0 of 13.0.
    pub minor: u32,
}

impl Version {
    /// From the number that headers and the driver have: 12040 is 12.4.
    pub fn from_number(number: u32) -> Self {
        Self { major: number / 1000, minor: number % 1000 / 10 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// The toolkit that kernels are compiled with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolkit {
    /// The version of NVRTC.
    pub compiler: Version,
    /// Compute capabilities that the compiler knows, as 90 for 9.0; empty where it does not tell.
    pub architectures: Vec<u32>,
}

impl Toolkit {
    /// Looks for compiler and headers, and whether they fit one another and the driver of that version.
    ///
    /// # Errors
    /// What is missing or does not fit.
    pub fn find(driver: Version) -> Result<Self, Missing> {
        let cure = |why: &str| format!("{why}install the CUDA toolkit {driver}, or without root: {}", wheels(driver));
        let root = root();
        let Some(library) = load_compiler(root.as_deref()) else {
            return Err(Missing::unusable("CUDA's run-time compiler (libnvrtc.so) is not there", cure("")));
        };
        let Some((compiler, architectures)) = versions(library) else {
            return Err(Missing::unusable(
                "CUDA's run-time compiler (libnvrtc.so) does not tell its version",
                cure(""),
            ));
        };
        let Some(root) = root else {
            let what = "CUDA's headers are not there: CUDA_PATH is not set, and there is no /usr/local/cuda";
            return Err(Missing::unusable(what, cure("set CUDA_PATH to the toolkit's folder, ")));
        };
        let absent: Vec<&str> = HEADERS.iter().filter(|one| !one.is_in(&root)).map(|one| one.name).collect();
        if !absent.is_empty() {
            let what = format!("CUDA's headers are not whole: {} has no {}", root.display(), absent.join(", "));
            return Err(Missing::unusable(what, cure("set CUDA_PATH to the toolkit's folder, ")));
        }
        let found = Self { compiler, architectures };
        found.fits(driver, headers(&root), &root)?;
        Ok(found)
    }

    /// Whether the driver loads what this compiler makes, and the compiler reads these headers.
    fn fits(&self, driver: Version, headers: Option<Version>, root: &Path) -> Result<(), Missing> {
        let compiler = self.compiler;
        if compiler > driver {
            let what = format!("CUDA's run-time compiler is of {compiler} and the driver takes code up to {driver}");
            return Err(Missing::unusable(what, format!("update the driver, or use an older one: {}", wheels(driver))));
        }
        match headers {
            Some(headers) if headers > compiler => Err(Missing::unusable(
                format!(
                    "CUDA's headers in {} are of {headers} and its run-time compiler is of {compiler}, which cannot \
                     read them",
                    root.display()
                ),
                format!(
                    "put the compiler of the same toolkit first (LD_LIBRARY_PATH={}), or set CUDA_PATH to the toolkit \
                     of {compiler}",
                    root.join(if root.join("lib64").is_dir() { "lib64" } else { "lib" }).display()
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Whether kernels can be compiled for a GPU of that compute capability (90 for 9.0).
    pub fn compiles_for(&self, capability: u32) -> Result<(), Missing> {
        let known = match self.architectures.is_empty() {
            true => capability >= if self.compiler.major >= 13 { 75 } else { 50 },
            false => self.architectures.contains(&capability),
        };
        if known {
            return Ok(());
        }
        let of = format!("{}.{}", capability / 10, capability % 10);
        let newest = self.architectures.iter().max().is_some_and(|newest| capability > *newest);
        Err(Missing::unusable(
            format!(
                "the GPU has compute capability {of}, for which CUDA's run-time compiler {} makes no code",
                self.compiler
            ),
            match newest {
                true => "install a newer CUDA toolkit",
                false => "CUDA 12 goes down to 5.0, CUDA 13 to 7.5: install an older toolkit, or use a newer GPU",
            },
        ))
    }
}

/// What a user without root installs in the active virtual environment, where it is found by itself.
fn wheels(driver: Version) -> String {
    match driver.major {
        13.. => "`pip install 'nvidia-cuda-nvrtc==13.0.*' 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cccl==13.0.*' \
                 'nvidia-cuda-crt==13.0.*'` in the active virtual environment"
            .into(),
        _ => format!(
            "`pip install 'nvidia-cuda-nvrtc-cu12=={driver}.*' 'nvidia-cuda-runtime-cu12=={driver}.*' \
             'nvidia-cuda-cccl-cu12=={driver}.*' 'nvidia-cuda-nvcc-cu12=={driver}.*'` in the active virtual environment"
        ),
    }
}

/// Where the toolkit is. CubeCL looks for headers in the folder that the variable names, below `include`.
pub fn root() -> Option<PathBuf> {
    let named = std::env::var_os(ROOT_VARIABLE).map(PathBuf::from);
    let named = named.map(|folder| headers::stands_for(&folder).unwrap_or(folder));
    let usual = || ["/usr/local/cuda", "/opt/cuda"].map(PathBuf::from).into_iter().find(|folder| folder.exists());
    named.or_else(usual).or_else(|| Path::new("/usr/bin/nvcc").exists().then(|| "/usr".into()))
}

/// A header that kernels include, by where it may be below the toolkit.
struct Header {
    name: &'static str,
    places: &'static [&'static str],
}

impl Header {
    fn is_in(&self, root: &Path) -> bool {
        self.places.iter().any(|place| root.join(place).is_file())
    }
}

/// One of each wheel.
const HEADERS: [Header; 3] = [
    Header { name: "cuda_runtime.h", places: &["include/cuda_runtime.h"] },
    Header { name: "crt/host_defines.h", places: &["include/crt/host_defines.h"] },
    Header { name: "cuda/barrier", places: &["include/cccl/cuda/barrier", "include/cuda/barrier"] },
];

/// The version in `cuda_runtime_api.h`.
fn headers(root: &Path) -> Option<Version> {
    let text = std::fs::read_to_string(root.join("include/cuda_runtime_api.h")).ok()?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("#define CUDART_VERSION"))?;
    Some(Version::from_number(line.trim().parse().ok()?))
}

/// The names under which cudarc 0.19, which CubeCL uses, looks for the compiler; in its order, without those that Linux
/// never has.
const COMPILER: &[&str] = &["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11"];

/// The compiler that CubeCL will load. Where the dynamic loader does not find one, that of the toolkit is loaded by its
/// path; it is then found by its name, too.
fn load_compiler(root: Option<&Path>) -> Option<Library> {
    Library::first(COMPILER).or_else(|| {
        let files = ["lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"];
        let files = files.iter().filter_map(|folder| std::fs::read_dir(root?.join(folder)).ok()).flatten().flatten();
        let mut files: Vec<PathBuf> = files.map(|entry| entry.path()).collect();
        files.sort();
        let named = |start: &str| {
            let start = start.to_owned();
            files.iter().filter(move |path| name_of(path).starts_with(&start) && !name_of(path).contains(".alt."))
        };
        // The compiler loads its library of built-in functions by name, when it compiles.
        for path in named("libnvrtc-builtins.so") {
            Library::open(path);
        }
        let loaded = named("libnvrtc.so").find_map(Library::open);
        loaded.and_then(|_| Library::first(COMPILER))
    })
}

/// The compiler's version and the architectures that it knows.
fn versions(library: Library) -> Option<(Version, Vec<u32>)> {
    type GetVersion = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
    type GetCount = unsafe extern "C" fn(*mut c_int) -> c_int;
    // SAFETY: the signatures of the manual of NVRTC.
    let get_version = unsafe { library.function::<GetVersion>(c"nvrtcVersion") }?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both point to an int.
    if unsafe { get_version(&raw mut major, &raw mut minor) } != 0 {
        return None;
    }
    let architectures = || {
        // SAFETY: the signatures of the manual; the second takes room for as many ints as the first says.
        let (count, fill) = unsafe {
            let count = library.function::<GetCount>(c"nvrtcGetNumSupportedArchs")?;
            (count, library.function::<GetCount>(c"nvrtcGetSupportedArchs")?)
        };
        let mut number = 0;
        // SAFETY: it points to an int.
        let counted = unsafe { count(&raw mut number) } == 0;
        let mut found: Vec<c_int> = vec![0; usize::try_from(number).ok().filter(|_| counted)?];
        // SAFETY: there is room for that many.
        let filled = unsafe { fill(found.as_mut_ptr()) } == 0;
        filled.then(|| found.into_iter().filter_map(|one| u32::try_from(one).ok()).collect())
    };
    let number = |value: c_int| u32::try_from(value).unwrap_or_default();
    Some((Version { major: number(major), minor: number(minor) }, architectures().unwrap_or_default()))
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// The toolkit in the wheels of a virtual environment. From CUDA 13 on they make one folder; those of CUDA 12 are apart, so
/// that one of links to them is made below `cache`.
pub fn of_virtual_environment(environment: &Path, cache: impl FnOnce() -> PathBuf) -> Option<PathBuf> {
    let pythons = std::fs::read_dir(environment.join("lib")).ok()?.flatten().map(|entry| entry.path());
    let mut pythons: Vec<PathBuf> = pythons.filter(|path| name_of(path).starts_with("python3")).collect();
    pythons.sort();
    let has = |root: &Path| root.join("include/cuda_runtime.h").is_file();
    let wheels = pythons.into_iter().map(|python| python.join("site-packages/nvidia"));
    let wheels = wheels.into_iter().find(|nvidia| has(&nvidia.join("cu13")) || has(&nvidia.join("cuda_runtime")))?;
    match has(&wheels.join("cu13")) {
        true => Some(wheels.join("cu13")),
        false => linked(&wheels, &cache().join("cuda_12").join(digits_of(&wheels))),
    }
}

/// Makes `folder` the toolkit whose parts are in the wheels of CUDA 12.
fn linked(wheels: &Path, folder: &Path) -> Option<PathBuf> {
    for part in ["cuda_runtime", "cuda_nvrtc", "cuda_cccl", "cuda_nvcc"] {
        for kind in ["include", "lib"] {
            let into = folder.join(kind);
            std::fs::create_dir_all(&into).ok()?;
            for entry in std::fs::read_dir(wheels.join(part).join(kind)).into_iter().flatten().flatten() {
                let link = into.join(entry.file_name());
                if link.is_symlink() && !link.exists() {
                    std::fs::remove_file(&link).ok()?;
                }
                if !link.exists() {
                    std::os::unix::fs::symlink(entry.path(), &link).ok()?;
                }
            }
        }
    }
    Some(folder.to_owned())
}

/// A name for a folder of links to these wheels, or to this toolkit.
pub fn digits_of(wheels: &Path) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    wheels.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn version(major: u32, minor: u32) -> Version {
        Version { major, minor }
    }

    fn toolkit(compiler: Version, architectures: &[u32]) -> Toolkit {
        Toolkit { compiler, architectures: architectures.into() }
    }

    #[test]
    fn a_compiler_newer_than_the_driver_and_headers_newer_than_the_compiler_do_not_fit() {
        let root = Path::new("/opt/cuda");
        let compiler = toolkit(version(12, 4), &[]);
        assert_eq!(compiler.fits(version(12, 4), Some(version(12, 4)), root), Ok(()));
        assert_eq!(compiler.fits(version(13, 0), Some(version(12, 0)), root), Ok(()));
        let newer = compiler.fits(version(12, 2), None, root).unwrap_err().to_string();
        assert!(newer.contains("is of 12.4 and the driver takes code up to 12.2"), "{newer}");
        assert!(newer.contains("'nvidia-cuda-nvrtc-cu12==12.2.*'"), "{newer}");
        let headers = compiler.fits(version(13, 0), Some(version(13, 0)), root).unwrap_err().to_string();
        assert!(
            headers.contains("headers in /opt/cuda are of 13.0") && headers.contains("LD_LIBRARY_PATH="),
            "{headers}"
        );
    }

    #[test]
    fn a_gpu_that_the_compiler_does_not_know_is_named() {
        let compiler = toolkit(version(13, 0), &[75, 80, 90]);
        assert_eq!(compiler.compiles_for(80), Ok(()));
        let old = compiler.compiles_for(52).unwrap_err().to_string();
        assert!(old.contains("compute capability 5.2") && old.contains("an older toolkit"), "{old}");
        let new = compiler.compiles_for(120).unwrap_err().to_string();
        assert!(new.contains("install a newer CUDA toolkit"), "{new}");
        assert!(toolkit(version(13, 0), &[]).compiles_for(52).is_err(), "known of CUDA 13 without asking");
        assert_eq!(toolkit(version(12, 4), &[]).compiles_for(52), Ok(()));
    }

    fn file(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        crate::results::write::replace(path, text.as_bytes()).unwrap();
    }

    #[test]
    fn the_wheels_of_cuda_13_are_a_toolkit_and_those_of_12_become_one() {
        let folder = tempfile::tempdir().unwrap();
        let cache = || folder.path().join("cache");
        let nvidia = folder.path().join("lib/python3.12/site-packages/nvidia");
        assert_eq!(of_virtual_environment(folder.path(), cache), None);
        file(&nvidia.join("cuda_runtime/include/cuda_runtime.h"), "");
        file(&nvidia.join("cuda_runtime/include/cuda_runtime_api.h"), "\n#define CUDART_VERSION  12040\n");
        file(&nvidia.join("cuda_nvcc/include/crt/host_defines.h"), "");
        file(&nvidia.join("cuda_nvrtc/lib/libnvrtc.so.12"), "");
        let root = of_virtual_environment(folder.path(), cache).unwrap();
        assert_eq!(headers(&root), Some(version(12, 4)));
        let absent: Vec<&str> = HEADERS.iter().filter(|one| !one.is_in(&root)).map(|one| one.name).collect();
        assert_eq!(absent, ["cuda/barrier"], "the wheel of CCCL is not installed");
        assert!(root.join("lib/libnvrtc.so.12").is_file());
        // Moved to another place since: links are made anew.
        std::fs::remove_file(root.join("lib/libnvrtc.so.12")).unwrap();
        std::os::unix::fs::symlink("/nowhere", root.join("lib/libnvrtc.so.12")).unwrap();
        assert!(of_virtual_environment(folder.path(), cache).unwrap().join("lib/libnvrtc.so.12").is_file());
        file(&nvidia.join("cu13/include/cuda_runtime.h"), "");
        assert_eq!(of_virtual_environment(folder.path(), cache), Some(nvidia.join("cu13")));
    }
}
