# Commands of development and release. `just --list` lists them; docs/releasing.md has the order of a release.

# All checks that must pass before a change lands.
check:
    .ci/run

# Tests of everything that needs no Burn.
test:
    cargo test --no-default-features --locked

# The wheel for the CPU, in dist.
wheel:
    packaging/wheel dist

# Tests of the Python package with the wheel, in a new environment.
python: wheel
    .ci/python dist/*.whl

# Times of the Python package, on an idle machine.
python-times:
    python3 python/benchmarks/measure.py target/release/xrun

# The archive of a release, with checksums.
archive: wheel
    packaging/archive dist/*.whl dist
    cd dist && sha256sum -- *.whl *.tar.gz > SHA256SUMS

# The section of a version in the changelog, after a check of all versions.
changelog version:
    packaging/changelog {{version}}

# Known vulnerabilities, licences and sources of all dependencies.
audit:
    cargo deny --locked check advisories licenses sources
