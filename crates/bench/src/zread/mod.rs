//! The experiment `zread`: reading without copies (Park, *Optimizing Memory Subsystem for Efficient Resource Utilization of Data-intensive
//! Applications*, 2020, chapter 4: z-READ).
//!
//! Relies on its parts, each of which measures by itself and makes its own figures. A new part is a module here, a name in
//! `PARTS`, a field of `ZreadResults`, and a line in `run` and `figures`.

mod charts;
mod file_sets;
mod leases;
mod neighbour_loads;
mod programs;
mod read_loads;
mod reads;
mod scale;
mod servers;
mod spec;
mod trial;
mod workers;

use std::path::Path;

use clap::builder::PossibleValuesParser;

use crate::chart::Chart;
use crate::experiment::{BinaryArgs, CommonArgs, Experiment, wants};
use crate::progress::Progress;
use crate::report::{BetterDirection, Figure, Report};
use leases::LeaseResults;
use programs::ProgramResults;
use reads::{ReadPart, ReadResults};
use scale::ReadScale;
use servers::{NeighbourResults, ServerResults};
use workers::Workers;

pub use trial::{CHILD, serve};

/// The parts.
const PARTS: [&str; 9] = [leases::PART, "sizes", "threads", "mixed", VIDEO, WEB, NEIGHBOURS, PROGRAMS[0], PROGRAMS[1]];
const VIDEO: &str = "video";
const WEB: &str = "web";
const NEIGHBOURS: &str = "neighbours";
const PROGRAMS: [&str; 2] = ["fio", "nginx"];

/// The arguments of `quire bench zread`.
#[derive(Debug, Clone, clap::Args)]
pub struct ZreadArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Parts to run, comma separated [default: all]
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(PARTS))]
    parts: Vec<String>,
    /// Size of the file that leases are of, in MiB; it is in memory twice, in the page cache and in the pool [default: 256, quick: 64]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(8..=65_536))]
    file: Option<u64>,
    #[command(flatten)]
    binary: BinaryArgs,
}

/// What the parts that were asked for have measured.
#[derive(Debug, Clone, Default)]
pub struct ZreadResults {
    leases: Option<LeaseResults>,
    reads: ReadResults,
    servers: ServerResults,
    neighbours: Option<NeighbourResults>,
    programs: ProgramResults,
    /// Reads that the library has remapped by default and without its model, and its last line.
    remapped: Option<(Option<u64>, Option<u64>, String)>,
}

impl ZreadArgs {
    fn file_bytes(&self) -> u64 {
        self.file.unwrap_or(self.common.pick(256, 64)) << 20
    }

    fn read_parts(&self) -> Vec<ReadPart> {
        ReadPart::NAMES.iter().filter(|(name, _)| wants(&self.parts, name)).map(|(_, part)| *part).collect()
    }

    /// The parts whose processes live on, with and without the library.
    fn run_workers(&self, scale: &ReadScale, dir: &Path, results: &mut ZreadResults) -> anyhow::Result<()> {
        let (program, progress) = (self.binary.path()?, Progress::begin());
        // Patterns are of the path as the kernel tells it.
        let dir = dir.canonicalize()?;
        let mut workers = Workers::start(&program, &dir)?;
        let (files, file_bytes) = scale.files;
        let blocks = scale::make_files(&dir, "blocks", files, file_bytes)?;
        results.reads = reads::measure(&self.read_parts(), scale, &blocks, &mut workers, progress)?;
        if wants(&self.parts, VIDEO) {
            results.servers.video = servers::measure_video(scale, &dir, &mut workers, progress)?;
        }
        if wants(&self.parts, WEB) {
            results.servers.web = servers::measure_web(scale, &dir, &mut workers, progress)?;
        }
        if wants(&self.parts, NEIGHBOURS) {
            let neighbours = servers::measure_neighbours(scale, &program, &blocks, &mut workers, progress)?;
            results.neighbours = Some(neighbours);
        }
        results.remapped = Some(workers.end());
        progress.clear();
        Ok(())
    }
}

impl Experiment for ZreadArgs {
    type Results = ZreadResults;

    const NAME: &'static str = "zread";
    const ABOUT: &'static str =
        "Reading without copies: leases beside pread(), and read() of programs with the preload library";
    const DRAWS: Option<&'static str> = Some("throughput over sizes, threads and mixes, servers and neighbours");

    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn run(&self) -> anyhow::Result<ZreadResults> {
        let dir = self.common.make_dir()?;
        let mut results = ZreadResults::default();
        if wants(&self.parts, leases::PART) {
            results.leases = Some(leases::measure(dir.path(), self.file_bytes(), self.common.rounds(9, 5))?);
        }
        let scale = ReadScale::new(&self.common);
        let has_workers =
            !self.read_parts().is_empty() || [VIDEO, WEB, NEIGHBOURS].iter().any(|part| wants(&self.parts, part));
        if has_workers {
            self.run_workers(&scale, dir.path(), &mut results)?;
        }
        let programs: Vec<&str> = PROGRAMS.into_iter().filter(|name| wants(&self.parts, name)).collect();
        if !programs.is_empty() {
            results.programs = programs::measure(&programs, &scale, &dir.path().canonicalize()?, Progress::begin())?;
        }
        Ok(results)
    }

    fn beyond_quick(&self) -> Vec<(&'static str, String)> {
        let reason = "of so many short trials the least is noise";
        vec![
            ("mixed_worst_case", reason.into()),
            ("neighbour_", "its rounds are too short to differ by some percent".into()),
        ]
    }

    fn figures(&self, results: &ZreadResults, report: &mut Report) {
        let scale = ReadScale::new(&self.common);
        report.scale.insert("file_mib".into(), (self.file_bytes() >> 20).into());
        report.scale.insert("rounds".into(), scale.rounds.into());
        report.scale.insert("trial_ms".into(), scale.run_ms.into());
        if let Some(leases) = &results.leases {
            leases::add_figures(leases, report);
        }
        reads::add_figures(&results.reads, &self.read_parts(), report);
        servers::add_server_figures(&results.servers, report);
        if let Some(neighbours) = &results.neighbours {
            servers::add_neighbour_figures(neighbours, report);
        }
        programs::add_figures(&results.programs, report);
        if let Some((by_default, eagerly, line)) = &results.remapped {
            let count = |reads: &Option<u64>| reads.map_or(f64::NAN, |reads| reads as f64);
            let figure = Figure::new("reads_remapped", count(by_default), "", BetterDirection::Higher);
            report.info.push(figure.peer("without_model", count(eagerly)).note(line.clone()));
        }
    }

    fn plots(&self, results: &ZreadResults) -> Vec<Chart> {
        let mut charts = charts::of_reads(&results.reads);
        charts.extend(charts::of_servers(&results.servers));
        charts.extend(results.neighbours.as_ref().and_then(charts::of_neighbours));
        charts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::{parse, report};

    #[test]
    fn a_small_run_has_all_figures_of_its_part_with_goals_and_bounds() {
        let args = parse::<ZreadArgs>("--quick --parts leases --file 8 --rounds 1 --dir .");
        let results = args.run().unwrap();
        let mut report = report::<ZreadArgs>();
        args.figures(&results, &mut report);
        let goals: Vec<_> = report.results.iter().map(|figure| (figure.name.as_str(), figure.goal)).collect();
        let expected = [
            ("lease_vs_pread_4k", Some(2.0)),
            ("lease_vs_pread_64k", Some(1.5)),
            ("lease_untouched_vs_pread_4k", Some(20.0)),
            ("lease_untouched_vs_pread_64k", Some(20.0)),
        ];
        assert_eq!(goals, expected);
        assert!(report.results.iter().all(|figure| figure.value > 0.0));
        assert!(report.results[..2].iter().all(|figure| figure.bound.is_some()));
        assert_eq!(report.info.len(), 6, "the other sizes");
    }

    #[test]
    fn a_run_names_the_parts_it_has_and_all_of_them_without_a_word() {
        let parts = |words: &str| parse::<ZreadArgs>(words).read_parts();
        assert_eq!(parts(""), ReadPart::NAMES.map(|(_, part)| part));
        assert_eq!(parts("--parts mixed,leases"), [ReadPart::Mixed]);
        assert!(parts("--parts nginx").is_empty());
    }
}
