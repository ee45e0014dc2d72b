//! Reads a scene and a script, plays it, and writes down what is said.
//!
//! A scene is a machine and a container per line: name, QoS class, CPUs, then `mode=`, `knobs=` (without it, all that a node offers together),
//! `mems=`, `exclusive`. A script is a phase per line: how long, then for each container the name and what is measured. `gone NAME`, `off NAME`, `observe NAME`, `act NAME`, `disallow NUMBER` (of a proposal), `contest NAME` (another program changes its files),
//! `moved NAME`, `in NAME CPUS`, `clock NAME CPUS` (another clock domain is better, those are to be left), `home NAME` (its own place is as good), `touched NAME` and `forbid KNOBS` hold from then on. `ended NUMBER` is said of a proposal, `intruder NAME TASK CPUS` of what a task takes of its CPUs. `idle 0.5` is what the
//! kernel says of all CPUs from then on. `until a proposal` and `until a verdict` end a phase after the round that brings one, at the latest after
//! 100 rounds. Rounds last 5 s.

use super::*;

/// What a script is played on.
struct Play {
    scene: Scene,
    ids: BTreeMap<String, ContainerId>,
    rebalancer: Rebalancer,
    refuses: bool,
    now: Duration,
    told: String,
}

pub(crate) fn check(scene: &str, script: &str, expected: Expect) {
    check_with(Settings::default(), scene, script, expected);
}

pub(crate) fn check_with(settings: Settings, scene: &str, script: &str, expected: Expect) {
    expected.assert_eq(&play_with(settings, scene, script).told);
}

/// What is said.
pub(crate) fn play(scene: &str, script: &str) -> String {
    play_with(Settings::default(), scene, script).told
}

/// All that is usual then.
pub(crate) fn rows_after(scene: &str, script: &str) -> Vec<crate::Baseline> {
    play_with(Settings::default(), scene, script).rebalancer.baselines()
}

/// What is usual then for the workload of this name, by signal.
pub(crate) fn usual_after(scene: &str, script: &str, name: &str, signal: Signal) -> f64 {
    let rows = rows_after(scene, script);
    let row = rows.iter().find(|it| it.workload.owner == name && it.signal == signal);
    row.unwrap().usual.value().unwrap()
}

/// How many suffer from others at the end.
pub(crate) fn victims_after(scene: &str, script: &str) -> usize {
    play_with(Settings::default(), scene, script).rebalancer.victims()
}

/// What nothing is proposed for at the end, and why.
pub(crate) fn unhelped_after(scene: &str, script: &str) -> String {
    let play = play_with(Settings::default(), scene, script);
    let found = play.rebalancer.unhelped(&play.scene, play.now);
    let line = |it: &crate::Unhelped| {
        let name = play.scene.residents.get(&it.container).map_or("?", |it| it.name.as_str());
        format!("{name}: {}\n", it.render())
    };
    found.iter().map(line).collect()
}

/// A server on both caches of a node, and a job beside it.
pub(super) const SPREAD: &str = "
    machine pack:1 numa:1 l3:2 core:4 pu:1
    web burstable 0-7
    job besteffort 0-7
";

/// Two that can leave the CPUs of a server, which can do nothing itself.
pub(super) const ONE_AND_TWO: &str = "
    machine pack:1 numa:1 l3:2 core:4 pu:1
    web burstable 0-3 knobs=
    one burstable 0-3 knobs=move
    two burstable 0-3 knobs=move
";

fn play_with(settings: Settings, scene: &str, script: &str) -> Play {
    let (scene, ids) = parse_scene(scene);
    let rebalancer = Rebalancer::new(settings);
    let now = Duration::ZERO;
    let mut play = Play { scene, ids, rebalancer, refuses: false, now, told: String::new() };
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        play.phase(line);
    }
    play
}

impl Play {
    fn phase(&mut self, line: &str) {
        let (length, rest) = line.split_once("  ").unwrap_or((line, ""));
        let (rounds, word) = match length {
            "until a proposal" => (100, Some("propose")),
            "until a verdict" => (100, Some("judge")),
            "refuse" => return self.refuses = true,
            _ => match length.split_once(' ') {
                Some((count, "rounds")) => (count.parse().unwrap(), None),
                Some((word, rest)) => return self.change(word, rest),
                None => panic!("`{line}` is no phase"),
            },
        };
        for _ in 0..rounds {
            let said = self.round(rest);
            if word.is_some_and(|word| said.contains(word)) {
                return;
            }
        }
    }

    /// Something happens between two rounds.
    fn change(&mut self, what: &str, rest: &str) {
        match (what, rest) {
            ("unrest", "ends") => self.scene.unrest = None,
            ("unrest", "begins") => self.scene.unrest = Some(Unrest::Creating),
            ("idle", share) => {
                let share: f64 = share.parse().unwrap();
                let cpus = self.scene.topology.cpus().iter();
                self.scene.idle = cpus.map(|cpu| (cpu, share)).collect();
            }
            ("forbid", names) => {
                let forbidden = parse_knobs(names);
                self.rebalancer.reconfigure(Settings { forbidden, ..Settings::default() });
            }
            ("intruder", words) => self.intrude(words),
            ("ended", number) => {
                self.rebalancer.ended(number.parse().unwrap(), self.now);
            }
            ("touched", name) => {
                self.scene.touched.insert(self.ids[name]);
            }
            ("moved", name) => {
                let resident = self.scene.residents.get_mut(&self.ids[name]).unwrap();
                resident.since = self.now;
            }
            ("in", place) => {
                let (name, cpus) = place.split_once(' ').unwrap();
                let resident = self.scene.residents.get_mut(&self.ids[name]).unwrap();
                (resident.cpus, resident.since) = (cpus.parse().unwrap(), self.now);
            }
            ("clock", place) => {
                let (name, leave) = place.split_once(' ').unwrap();
                let (leave, is_better_away) = (leave.parse().unwrap(), true);
                self.scene.clocks.insert(self.ids[name], ClockPlace { leave, is_better_away });
            }
            ("home", name) => {
                let place = self.scene.clocks.get_mut(&self.ids[name]).unwrap();
                place.is_better_away = false;
            }
            (word @ ("off" | "observe" | "act"), name) => {
                let resident = self.scene.residents.get_mut(&self.ids[name]).unwrap();
                let modes = [Mode::Off, Mode::Observe, Mode::Act];
                resident.mode = modes.into_iter().find(|it| it.name() == word).unwrap();
            }
            ("contest", name) => {
                let id = self.ids[name];
                self.scene.contested.insert(id);
                self.scene.residents.get_mut(&id).unwrap().mode = Mode::Observe;
            }
            ("disallow", number) => {
                self.scene.disallowed.insert(number.parse().unwrap());
            }
            ("gone", name) => {
                let id = self.ids[name];
                self.scene.residents.remove(&id);
            }
            _ => panic!("`{what} {rest}` is no phase"),
        }
    }

    fn intrude(&mut self, words: &str) {
        let [victim, name, cpus] = words.split(' ').collect::<Vec<_>>()[..] else {
            panic!("`{words}`: container, name, CPUs")
        };
        let (name, cpus) = (name.to_owned(), cpus.parse().unwrap());
        self.scene.intruders.insert(self.ids[victim], Intruder { name, cpus });
    }

    /// One round; what was said in it.
    fn round(&mut self, samples: &str) -> String {
        self.now += Duration::from_secs(5);
        let samples = parse_samples(samples, &self.ids, self.now);
        let round = Round { at: self.now, period: Duration::from_secs(5), samples };
        let mut said = String::new();
        let scene = &self.scene;
        let name_of = |id: ContainerId| {
            let name = scene.residents.get(&id).map(|it| it.name.clone());
            name.unwrap_or_else(|| id.to_string())
        };
        for decision in self.rebalancer.look(scene, &round) {
            let _ = write!(said, "{} s: ", self.now.as_secs());
            match decision {
                Decision::Propose(proposal) => {
                    let (mode, number) = (proposal.mode.name(), proposal.number);
                    let line = render_proposal(&proposal, &name_of);
                    let _ = writeln!(said, "propose {number} ({mode}) {line}");
                    for line in render_evidence(&proposal.evidence, &name_of).lines().skip(1) {
                        let _ = writeln!(said, "    {}", line.trim());
                    }
                    let outcome = match self.refuses {
                        true => Outcome::Refused("there is no room".to_owned()),
                        false => Outcome::Done,
                    };
                    if proposal.mode == Mode::Act {
                        self.rebalancer.carried_out(number, &outcome, self.now);
                    }
                }
                Decision::Judge { number, verdict } => {
                    let line = render_verdict(&verdict, &name_of);
                    let _ = writeln!(said, "judge {number} {line}");
                }
            }
        }
        self.told.push_str(&said);
        said
    }
}

/// A scene with the number of every container.
pub(crate) fn parse_scene(text: &str) -> (Scene, BTreeMap<String, ContainerId>) {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let machine = lines.next().and_then(|line| line.strip_prefix("machine ")).unwrap();
    let topology = Arc::new(derive(&parse_machine(machine).unwrap()).unwrap());
    let mut residents = BTreeMap::new();
    let mut ids = BTreeMap::new();
    for (line, number) in lines.zip(1..) {
        let resident = parse_resident(line);
        ids.insert(resident.name.clone(), ContainerId(number));
        residents.insert(ContainerId(number), resident);
    }
    let mut shared = topology.cpus().clone();
    residents.values().for_each(|it| shared.subtract(&it.exclusive));
    let (idle, touched) = (BTreeMap::new(), BTreeSet::new());
    (
        Scene {
            topology,
            residents,
            shared,
            idle,
            touched,
            intruders: BTreeMap::new(),
            disallowed: BTreeSet::new(),
            contested: BTreeSet::new(),
            clocks: BTreeMap::new(),
            unrest: None,
        },
        ids,
    )
}

fn parse_resident(line: &str) -> Resident {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap().to_owned();
    let qos = match words.next().unwrap() {
        "guaranteed" => Some(QosClass::Guaranteed),
        "burstable" => Some(QosClass::Burstable),
        "besteffort" => Some(QosClass::BestEffort),
        "unknown" => None,
        other => panic!("`{other}` is no QoS class"),
    };
    let workload = Workload {
        namespace: "default".to_owned(),
        owner: name.clone(),
        container: "main".to_owned(),
        image: "image".to_owned(),
    };
    let mut resident = Resident {
        name,
        workload,
        qos,
        class: CpuClass::Shared,
        cpus: words.next().unwrap().parse().unwrap(),
        exclusive: Default::default(),
        mems: NodeSet::new(),
        since: Duration::ZERO,
        mode: Mode::Act,
        knobs: Knob::ALL.into(),
    };
    for word in words {
        match word.split_once('=') {
            Some(("mode", "off")) => resident.mode = Mode::Off,
            Some(("mode", "observe")) => resident.mode = Mode::Observe,
            Some(("mems", mems)) => resident.mems = mems.parse().unwrap(),
            Some(("knobs", names)) => resident.knobs = parse_knobs(names),
            None if word == "exclusive" => {
                resident.exclusive = resident.cpus.clone();
                resident.class = CpuClass::Exclusive;
            }
            _ => panic!("`{word}` says nothing of a container"),
        }
    }
    resident
}

pub(crate) fn parse_knobs(names: &str) -> BTreeSet<Knob> {
    let named = |name: &str| Knob::ALL.into_iter().find(|knob| knob.name() == name).unwrap();
    names.split(',').filter(|it| !it.is_empty()).map(named).collect()
}

/// `web cpus=2 pressure=0.02  hog cpus=0`. Cycles per instruction are 1 where nothing is said, and not counted with `cpi=none`. A `~` before a value makes it change a little from round to round.
fn parse_samples(
    text: &str,
    ids: &BTreeMap<String, ContainerId>,
    now: Duration,
) -> BTreeMap<ContainerId, Sample> {
    let mut samples = BTreeMap::new();
    for part in text.split("  ").map(str::trim).filter(|part| !part.is_empty()) {
        let mut words = part.split(' ');
        let id = ids[words.next().unwrap()];
        let mut sample = Sample { cycles_per_instruction: Some(1.0), ..Sample::default() };
        for word in words {
            let (key, text) = word.split_once('=').unwrap();
            if word == "cpi=none" {
                sample.cycles_per_instruction = None;
                continue;
            }
            let value: f64 = text.trim_start_matches('~').parse().unwrap();
            let wobble = match text.starts_with('~') {
                true => 1.0 + 0.05 * ((now.as_secs() / 5 * 7919 + id.0 * 31) % 13) as f64 / 13.0,
                false => 1.0,
            };
            set(&mut sample, key, value * wobble);
        }
        samples.insert(id, sample);
    }
    samples
}

fn set(sample: &mut Sample, key: &str, value: f64) {
    match key {
        "cpus" => sample.cpus = value,
        "waiting" => sample.waiting = Some(value),
        "delay_ms" => sample.delay_p99 = Some(Duration::from_secs_f64(value / 1e3)),
        "preempted" => sample.preempted = Some(value),
        "hops" => {
            sample.migrations = Some(Migrations { within_node: value, ..Migrations::default() });
        }
        "throttled" => sample.throttled = Some(value),
        "pressure" => sample.cpu_pressure = Some(value),
        "far" => sample.far_memory = Some(value),
        "cpi" => sample.cycles_per_instruction = Some(value),
        "misses" => sample.cache_misses = Some(value),
        "bandwidth" => sample.memory_bandwidth = Some(value),
        "clock" => sample.clock = Some(value),
        other => panic!("`{other}` is not measured"),
    }
}
