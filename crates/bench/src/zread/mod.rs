//! The experiment `zread`: reading without copies (Park, *Optimizing Memory Subsystem for Efficient Resource Utilization of Data-intensive
//! Applications*, 2020, chapter 4: z-READ).
//!
//! Relies on its parts, each of which measures by itself and makes its own figures. A new part is a module here, a name in
//! [`PARTS`], a field of [`ZreadResults`], and a line in `run` and `figures`.

mod leases;

use clap::builder::PossibleValuesParser;

use crate::experiment::{CommonArgs, Experiment, wants};
use crate::report::Report;
use leases::LeaseResults;

/// The parts.
const PARTS: [&str; 1] = [leases::PART];

/// The arguments of `quire bench zread`.
#[derive(Debug, Clone, clap::Args)]
pub struct ZreadArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Parts to run, comma separated [default: all]
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(PARTS))]
    parts: Vec<String>,
    /// Size of the file that is read, in MiB; it is in memory twice, in the page cache and in the pool [default: 256, quick: 64]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(8..=65_536))]
    file: Option<u64>,
}

/// What the parts that were asked for have measured.
#[derive(Debug, Clone, Default)]
pub struct ZreadResults {
    leases: Option<LeaseResults>,
}

impl ZreadArgs {
    fn file_bytes(&self) -> u64 {
        self.file.unwrap_or(self.common.pick(256, 64)) << 20
    }
}

impl Experiment for ZreadArgs {
    type Results = ZreadResults;

    const NAME: &'static str = "zread";
    const ABOUT: &'static str = "Reading without copies: leases of the pool's pages beside pread()";

    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn run(&self) -> anyhow::Result<ZreadResults> {
        let dir = self.common.make_dir()?;
        let mut results = ZreadResults::default();
        if wants(&self.parts, leases::PART) {
            results.leases = Some(leases::measure(dir.path(), self.file_bytes(), self.common.rounds(9, 5))?);
        }
        Ok(results)
    }

    fn figures(&self, results: &ZreadResults, report: &mut Report) {
        report.scale.insert("file_mib".into(), (self.file_bytes() >> 20).into());
        if let Some(leases) = &results.leases {
            leases::add_figures(leases, report);
        }
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
}
