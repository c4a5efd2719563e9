//! `quire serve --clone`: which image is meant. Of a running server it is the one that a save makes which is asked for here, or the newest
//! one if that is young enough.
//!
//! Relies on the server running on this machine: its image is opened by its path.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::ArgMatches;
use quire_checkpoint::{ImageChain, ImageIdentity};
use quire_device::DiskDirectory;
use quire_server::clone_origin::CloneOrigin;
use quire_server::save_state::RestoreSummary;
use quire_units::format_duration;

use crate::peer::{Credentials, Peer, PeerInfo, address};
use crate::watch::{SaveBar, until_idle};

/// How often a save is asked for that another one, which began before, stands in the way of.
const ATTEMPTS: u32 = 10;

/// What is cloned.
pub struct CloneRequest {
    /// The image.
    pub origin: CloneOrigin,
    /// The server whose image it is to be, if a server was named.
    server: Option<Server>,
}

/// A server that says which save its image is.
struct Server {
    peer: Peer,
    /// What it said last.
    told: ImageIdentity,
}

impl CloneRequest {
    /// What the arguments name, if they name a clone. Has a server save first.
    pub fn find(matches: &ArgMatches) -> anyhow::Result<Option<Self>> {
        let Some(named) = matches.get_one::<String>("clone") else { return Ok(None) };
        if address(named).is_some() {
            return Self::of_server(named, matches).map(Some);
        }
        let origin = CloneOrigin::at(Path::new(named), named).map_err(anyhow::Error::msg)?;
        Ok(Some(Self { origin, server: None }))
    }

    fn of_server(named: &str, matches: &ArgMatches) -> anyhow::Result<Self> {
        let file = matches.get_one::<std::path::PathBuf>("clone-password-file").map(std::path::PathBuf::as_path);
        let credentials = Credentials::find(matches.get_one("clone-user"), file)?;
        let mut peer = Peer::connect(named)?;
        if !peer.is_local() {
            bail!(
                "{named} is another machine, and an image is read where it lies: start the clone there, or copy the image here with \
                 `quire image copy` and clone the copy"
            );
        }
        // Only now: another machine is not to hear the password.
        peer.authenticate(&credentials)?;
        let info = peer.info()?;
        check_kind(named, &info)?;
        let max_age = matches.get_one::<u64>("clone-max-age").copied().map(Duration::from_secs);
        if let Some(max_age) = max_age
            && let Ok(origin) = origin(named, &info)
            && let Some(age) = age_of(&origin)
            && age <= max_age
            && let Some(told) = identity(&info)
        {
            tracing::info!(age = format_duration(age), "the newest image is young enough for the clone");
            return Ok(Self { origin, server: Some(Server { peer, told }) });
        }
        let info = save(&mut peer, info)?;
        let Some(told) = identity(&info) else {
            bail!("{named} does not tell which save its image is: it is an older version");
        };
        Ok(Self { origin: origin(named, &info)?, server: Some(Server { peer, told }) })
    }

    /// Sees to it that what was opened is what the server has saved: behind a tunnel, or in another container, a server has other files
    /// by the same names. Ends the connection to the server.
    pub fn check(self, found: &RestoreSummary) -> anyhow::Result<()> {
        let Self { origin, server: Some(mut server) } = self else { return Ok(()) };
        if let Some(found) = found.image
            && found != server.told
            && found.history == server.told.history
            && found.epoch > server.told.epoch
        {
            // It may have saved again before the image was opened. It tells of a save when that is over, a moment after the image has its name.
            let info = until_idle(&mut server.peer, &SaveBar::new()?)?;
            server.told = identity(&info).unwrap_or(server.told);
        }
        if found.image == Some(server.told) {
            return Ok(());
        }
        let (path, named) = (origin.path(), &origin.named);
        let image = found.image.map_or_else(|| "no save that can be told".to_owned(), |image| image.to_string());
        bail!(
            "{} is {image}, but the last one of {named} is {}: it is not that server's image. Does the server run on another machine or in \
             another container? If it saves very often, try again",
            path.display(),
            server.told
        )
    }
}

/// Which save a server's image is; `None` if it has none, or is of a version that does not tell.
fn identity(info: &PeerInfo) -> Option<ImageIdentity> {
    let digits = |name| u64::from_str_radix(info.field(name), 16).ok();
    let (history, checksum) = (digits("image_history")?, digits("image_checksum")?);
    Some(ImageIdentity { history, epoch: info.number("image_epoch")?, checksum })
}

/// Only a server whose images can be mapped can be cloned.
fn check_kind(named: &str, info: &PeerInfo) -> anyhow::Result<()> {
    if info.field("quire_version").is_empty() {
        bail!(
            "{named} is no Quire but a Redis {}: its RDB files can't be mapped, so it can't be cloned",
            info.field("redis_version")
        );
    }
    Ok(())
}

/// The image of the server.
fn origin(named: &str, info: &PeerInfo) -> anyhow::Result<CloneOrigin> {
    let path = info.field("image_path");
    if path.is_empty() {
        bail!("{named} does not tell where its image is: it is a clone without a directory, or an older version");
    }
    CloneOrigin::at(Path::new(path), named).map_err(|reason| {
        anyhow::anyhow!(
            "{reason}. {named} has its image there: run the clone as a user, and in a container, that can read it"
        )
    })
}

/// How old the data of the newest image is; `None` if that can't be told.
fn age_of(origin: &CloneOrigin) -> Option<Duration> {
    let chain = ImageChain::open_shared(&DiskDirectory::new(&origin.directory), &origin.file).ok()?;
    let created = UNIX_EPOCH + Duration::from_millis(chain.info().created_unix_ms);
    SystemTime::now().duration_since(created).ok()
}

/// Has the server save and waits for it. `before` is what it told before.
fn save(peer: &mut Peer, before: PeerInfo) -> anyhow::Result<PeerInfo> {
    let bar = SaveBar::new()?;
    let mut before = before;
    if before.is_saving() {
        // That save began before this clone was asked for; the one that is counted below must not be taken for it.
        before = until_idle(peer, &bar)?;
    }
    for _ in 0..ATTEMPTS {
        let named = peer.named().to_owned();
        match peer.call(&["BGSAVE"])? {
            Ok(_) => {
                tracing::info!(server = named, "waiting for the save of the original");
                let after = until_idle(peer, &bar)?;
                if after.number("rdb_saves") > before.number("rdb_saves") {
                    return Ok(after);
                }
                if after.field("rdb_last_bgsave_status") != "ok" {
                    bail!("{named} could not save: {}", after.field("rdb_last_bgsave_error"));
                }
                bail!("the save of {named} was cancelled");
            }
            // It began before this clone was asked for, so it may lack what was written since.
            Err(error) if error.contains("already in progress") => before = until_idle(peer, &bar)?,
            Err(error) => bail!("{named} does not save: {error}"),
        }
    }
    Err(anyhow::anyhow!("{ATTEMPTS} saves of other clients came first")).context("no save for the clone could begin")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};

    #[test]
    fn an_image_that_its_server_tells_of_a_moment_later_is_cloned() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let named = listener.local_addr().unwrap().to_string();
        let told = |is_saving: u32, epoch: u32| {
            let text = format!(
                "rdb_bgsave_in_progress:{is_saving}\r\nimage_history:9\r\nimage_epoch:{epoch}\r\nimage_checksum:{epoch}\r\n"
            );
            format!("${}\r\n{text}\r\n", text.len())
        };
        let answers = [told(1, 1), told(1, 1), told(0, 2)];
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = BufReader::new(stream.try_clone().unwrap()).lines();
            for answer in answers {
                // "*1", "$4" and "INFO".
                asked.by_ref().take(3).for_each(|line| drop(line.unwrap()));
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        let image = tempfile::NamedTempFile::new().unwrap();
        let save = |number| ImageIdentity { history: 9, epoch: number, checksum: number };
        let wanted = CloneRequest {
            origin: CloneOrigin::at(image.path(), &named).unwrap(),
            server: Some(Server { peer: Peer::connect(&named).unwrap(), told: save(1) }),
        };
        wanted.check(&RestoreSummary { image: Some(save(2)), ..RestoreSummary::default() }).unwrap();
        server.join().unwrap();
    }
}
