//! What runs coua in containers: the image of `packaging/oci` and the manifests of `packaging/kubernetes`.

use std::fs;
use std::time::Duration;

use anyhow::Result;

use super::under_test::{LIMIT, coua};
use super::{Context, Outcome};
use crate::commands::{program, read, run_within, succeeds, target};
use crate::setup::packages::{self, Package};

/// What the image needs.
const NEEDED: &[Package] = &[
    (&["buildah"], "buildah"),
    (&["skopeo"], "skopeo"),
    (&["umoci"], "umoci"),
    (&["crun"], "crun"),
    (&["bwrap"], "bubblewrap"),
    (&["readelf"], "binutils"),
];

/// The manifests, by Kubernetes' schemas; their arguments and probes, by coua.
pub(crate) fn kubernetes(context: &Context) -> Result<Outcome> {
    run_within(
        LIMIT,
        program(&context.tools.python)
            .arg("packaging/kubernetes/check.py")
            .arg(coua(context)?),
    )?;
    Ok(Outcome::Passed)
}

/// The image, built twice to the same bytes, and run.
pub(crate) fn image(context: &Context) -> Result<Outcome> {
    if read(program("id").arg("-u"))? != "0" {
        let why = "only root may unpack and run an image";
        return Ok(Outcome::LeftOut(why.to_owned()));
    }
    packages::install(NEEDED)?;
    if !succeeds(program("buildah").args(["--storage-driver", "vfs", "info"])) {
        let why = "buildah has no place for images here";
        return Ok(Outcome::LeftOut(why.to_owned()));
    }
    let folder = target().join("image");
    fs::create_dir_all(&folder)?;
    let mut digests = Vec::new();
    let archive = folder.join("coua.oci.tar");
    let from = coua(context)?;
    for _ in 0..2 {
        run_within(
            Duration::from_secs(300),
            program("packaging/oci/build")
                .arg(&from)
                .arg(&archive)
                .env("STORAGE_DRIVER", "vfs"),
        )?;
        digests.push(read(
            program("skopeo")
                .args(["inspect", "--format", "{{.Digest}}"])
                .arg(format!("oci-archive:{}", archive.display())),
        )?);
    }
    anyhow::ensure!(
        digests[0] == digests[1],
        "two builds of one program give two images"
    );
    run_within(LIMIT, program("packaging/oci/check").arg(&archive))?;
    Ok(Outcome::Passed)
}
