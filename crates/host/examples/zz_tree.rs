//! x
#![allow(clippy::all, clippy::unwrap_used, clippy::print_stdout, clippy::panic, clippy::allow_attributes_without_reason)]
fn main() {
    for root in std::env::args().skip(1) {
        println!("=== {root}");
        let s = bayplan_host::read_snapshot(root.as_ref()).unwrap();
        let t = bayplan_topology::derive(&s).unwrap();
        print!("{}", bayplan_topology::render_tree(&t));
        for b in bayplan_topology::check_topology(&t) { println!("BREACH {b}"); }
        let n = |l| t.objects().iter().filter(|o| o.level == l).count();
        use bayplan_topology::Level::*;
        println!("COUNT pack={} die={} numa={} l3={} core={} pu={} allowed={:?}", n(Package), n(Die), t.nodes().len(), n(L3), t.cores().len(), t.cpus().len(), s.allowed_cpus);
    }
}
