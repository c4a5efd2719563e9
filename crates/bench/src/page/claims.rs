//! What the papers report of their own systems, beside which our figures are set.
//!
//! Relies on names of figures being stable. The numbers are the papers', on their machines; goals were set by them.

/// A paper and the experiment that repeats it.
#[derive(Debug)]
pub struct Paper {
    /// The experiment.
    pub experiment: &'static str,
    /// Authors, title, place, year.
    pub citation: &'static str,
    /// What it reports of figures whose names begin so.
    pub claims: &'static [(&'static [&'static str], &'static str)],
}

/// All papers, by experiment.
pub const PAPERS: &[Paper] = &[
    Paper {
        experiment: "snapshot",
        citation: "Mintel and others, Fork à la carte für In-Memory-Datenbanken (slides, 2022)",
        claims: &[
            (&["scoot_"], "2 GiB: scoot 18.71 ms, fork 38.20 ms, which is 2.0 ×"),
            (&["uffd_"], "2 GiB: userfaultfd 17.16 ms, fork 38.20 ms, which is 2.2 ×"),
        ],
    },
    Paper {
        experiment: "ccow",
        citation: "Ha and Kim, CCoW: Optimizing Copy-on-Write Considering the Spatial Locality in Workloads (Electronics, 2022)",
        claims: &[
            (&["ccow_throughput_gain"], "up to 10 % more throughput than fork in a micro benchmark"),
            (&["ccow_unneeded_ratio"], "24.9 % of the pages copied ahead are not needed, at a threshold of 80 %"),
        ],
    },
    Paper {
        experiment: "forkers",
        citation: "Ha and Kim, CCoW: Optimizing Copy-on-Write Considering the Spatial Locality in Workloads (Electronics, 2022)",
        claims: &[
            (
                &["redis_throughput_gain", "redis_cycle_throughput_gain"],
                "up to 5 % more throughput of Redis while it saves",
            ),
            (&["forkers_unneeded_ratio"], "24.9 % of the pages copied ahead are not needed, at a threshold of 80 %"),
        ],
    },
    Paper {
        experiment: "fastmap",
        citation: "Papagiannis and others, Optimizing Memory-mapped I/O for Fast Storage Devices (FastMap, USENIX ATC 2020)",
        claims: &[
            (&["rand_read_vs_mmap_t1"], "up to 38 % better than mmap with one thread"),
            (&["rand_read_vs_mmap_t16"], "3.7 × mmap with 32 threads on 32 cores"),
            (&["rand_write_vs_mmap_t16"], "6.6 × mmap with 32 threads on 32 cores"),
            (&["ycsb_load_vs_mmap"], "YCSB Load A: 3.08 × mmap"),
            (&["ycsb_c_vs_mmap"], "YCSB Run C: 1.65 × mmap"),
            (&["bfs_"], "breadth-first search: 3.3 to 5.3 × mmap"),
        ],
    },
    Paper {
        experiment: "wcache",
        citation: "Kim and others, Request-Oriented Durable Write Caching for Application Performance (USENIX ATC 2015)",
        claims: &[
            (
                &["pg_small_cache_vs_all", "pg_large_cache_vs_all", "pg_congested_vs_all"],
                "up to 2.2 × a cache of all writes (PostgreSQL)",
            ),
            (&["pg_cached_writes_saved"], "72 % fewer cached writes with PostgreSQL"),
            (&["redis_cached_writes_saved"], "87 % fewer cached writes with Redis"),
            (&["redis_p999_ms"], "99.9th percentile below 100 ms"),
            (&["pi_gain_over_cp"], "1.04 to 1.12 ×"),
            (&["ioi_gain_over_pi"], "1.18 to 1.29 ×"),
        ],
    },
    Paper {
        experiment: "checkpoint",
        citation: "Park, Optimizing Memory Subsystem for Efficient Resource Utilization of Data-intensive Applications (dissertation, 2020), chapter 5: MDC",
        claims: &[
            (&["mdc_", "fork_memory_growth"], "memory grows by 26 % during a checkpoint (by fork: 77 %)"),
            (
                &["checkpoint_time_ratio", "mdc_fork_checkpoint_time_ratio"],
                "a checkpoint takes up to 5 % longer than by fork",
            ),
        ],
    },
    Paper {
        experiment: "dbio",
        citation: "Park, Optimizing Memory Subsystem for Efficient Resource Utilization of Data-intensive Applications (dissertation, 2020), chapter 3: DBIO",
        claims: &[
            (&["ycsb_b_same_pool_vs_buffered"], "YCSB B: up to 4.35 × buffered I/O at the same size of the pool"),
            (&["ycsb_b_best_vs_best"], "YCSB B: 1.33 ×, each at its best size of the pool"),
            (&["tpcc_", "sqlite_tpcc_"], "TPC-C: 1.12 to 1.24 ×"),
        ],
    },
    Paper {
        experiment: "zread",
        citation: "Park, Optimizing Memory Subsystem for Efficient Resource Utilization of Data-intensive Applications (dissertation, 2020), chapter 4: z-READ",
        claims: &[
            (&["webserver_gain"], "web server: 3.8 ×"),
            (&["videoserver_gain"], "video server: 12.7 to 23.3 ×"),
            (&["neighbour_slowdown_zread"], "neighbours are slowed down by 11 %"),
            (&["neighbour_slowdown_read"], "neighbours are slowed down by 144 %"),
            (&["fio_gain"], "random reads of 16 KiB with 24 threads: up to 4.07 ×"),
        ],
    },
];

/// The paper that an experiment repeats.
pub fn paper_of(experiment: &str) -> Option<&'static Paper> {
    PAPERS.iter().find(|paper| paper.experiment == experiment)
}

/// What the experiment's paper reports of a figure.
pub fn claim_of(experiment: &str, figure: &str) -> Option<&'static str> {
    let claims = paper_of(experiment)?.claims.iter();
    let mut own = claims.filter(|(names, _)| names.iter().any(|name| figure.starts_with(name)));
    own.next().map(|(_, words)| *words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::EXPERIMENTS;

    #[test]
    fn every_paper_has_an_experiment_that_there_is() {
        for paper in PAPERS {
            assert!(EXPERIMENTS.iter().any(|entry| entry.name == paper.experiment), "{}", paper.experiment);
        }
    }

    #[test]
    fn a_claim_is_found_by_the_beginning_of_the_name() {
        assert_eq!(claim_of("fastmap", "bfs_guard_vs_mmap"), Some("breadth-first search: 3.3 to 5.3 × mmap"));
        assert_eq!(claim_of("fastmap", "hit_cost_ns"), None);
        assert_eq!(claim_of("server", "bfs_"), None);
    }
}
