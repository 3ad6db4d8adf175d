//! Mathematical functions in LLVM bitcode (libdevice), which CubeCL links into kernels.

use std::path::{Path, PathBuf};

use super::TOOLKIT_VARIABLE;
use xrun_core::dataset::cache;
use xrun_core::device::unavailable::Unavailable;

/// Path of the file in a toolkit. CubeCL searches the toolkit of [`TOOLKIT_VARIABLE`], or four directories where that is not set.
const LIBDEVICE: &str = "nvvm/libdevice/libdevice.10.bc";
/// Path of Triton's copy in the directory of Python packages.
const TRITON: &str = "triton/backends/nvidia/lib/libdevice.10.bc";

/// Checks that CubeCL will find the file.
///
/// # Errors
/// It will not.
pub fn check() -> Result<(), Unavailable> {
    let set = std::env::var_os(TOOLKIT_VARIABLE).map(PathBuf::from);
    let what = match &set {
        Some(toolkit) if toolkit.join(LIBDEVICE).is_file() => return Ok(()),
        Some(toolkit) => format!("{LIBDEVICE} is not in {TOOLKIT_VARIABLE} = {toolkit:?}"),
        None => format!(
            "{LIBDEVICE} is in no CUDA toolkit and no Python package (`nvidia-nvvm`, `triton`) of this environment"
        ),
    };
    let cure = "`pip install nvidia-nvvm`, or set CUDA_PATH to a CUDA toolkit; a package elsewhere is found \
                with CUDA_PATH=SITE_PACKAGES/nvidia/cu13";
    Err(Unavailable::unusable(what, cure))
}

/// Directory for [`TOOLKIT_VARIABLE`]: a CUDA toolkit, a Python package of one, or a link in the cache to Triton's copy.
pub fn toolkit() -> Option<PathBuf> {
    let packages = python_packages();
    let nvidia = packages.iter().flat_map(|directory| sorted(&directory.join("nvidia"), ""));
    let found = toolkits().into_iter().chain(nvidia).find(|toolkit| toolkit.join(LIBDEVICE).is_file());
    found.or_else(|| linked(&packages.iter().map(|directory| directory.join(TRITON)).find(|file| file.is_file())?))
}

/// Directories of CUDA toolkits in the system.
fn toolkits() -> Vec<PathBuf> {
    let versions = sorted(Path::new("/usr/local"), "cuda");
    let others = ["/opt/cuda", "/usr/lib/cuda", "/usr"].map(PathBuf::from);
    [PathBuf::from("/usr/local/cuda")].into_iter().chain(versions).chain(others).collect()
}

/// Directories of Python packages: those of the environment that this program is in, of the active one, of each `python3` on the path, and
/// of the user.
fn python_packages() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let paths = |name: &str| variable(name).map(|value| std::env::split_paths(&value).collect::<Vec<_>>());
    let own = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.parent()?.to_owned()));
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable).map(PathBuf::from);
    let environments = own.into_iter().chain(active);
    let pythons = paths("PATH").into_iter().flatten().map(|bin| bin.join("python3")).filter(|python| python.exists());
    let installed = pythons.flat_map(|python| [python.canonicalize().unwrap_or_default(), python]);
    let prefixes = installed.filter_map(|python| Some(python.parent()?.parent()?.to_owned()));
    let user = variable("HOME").map(|home| PathBuf::from(home).join(".local"));
    let libraries = environments.chain(prefixes).chain(user).flat_map(|prefix| sorted(&prefix.join("lib"), "python3"));
    let packages = libraries.flat_map(|library| ["site-packages", "dist-packages"].map(|name| library.join(name)));
    paths("PYTHONPATH").into_iter().flatten().chain(packages).collect()
}

/// Entries of a directory whose names begin so, the last name first: the newest of several versions.
fn sorted(directory: &Path, beginning: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(beginning))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths.reverse();
    paths
}

/// Toolkit in the cache that has nothing but a link to this file.
fn linked(file: &Path) -> Option<PathBuf> {
    let toolkit = cache::directory().join("libdevice");
    let link = toolkit.join(LIBDEVICE);
    if std::fs::read_link(&link).ok().as_deref() != Some(file) {
        cache::create(link.parent()?).ok()?;
        // Of another environment, or of a package that is gone.
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(file, &link).ok()?;
    }
    Some(toolkit)
}
