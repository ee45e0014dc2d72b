//! What kernel files cost with 250 containers: to plan, to look at when all is right, and to write. Eight files each, as a container with memory protection,
//! a burst, and block I/O has them. Files are read and written below a temporary directory: real system calls, without the kernel's own work behind them.

#![allow(
    clippy::unwrap_used,
    reason = "a benchmark that cannot be set up has nothing to go on with"
)]

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;

use bayplan_enforcement::{Form, Observed, Setting, Settings, Slot, files_to_read, plan_files};
use bayplan_host::kernel::{DiskKernel, apply, observe};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

const CONTAINERS: usize = 250;
const FILES: [(&str, Form, &str); 8] = [
    ("cpu.max.burst", Form::Text, "20000"),
    ("cpu.max", Form::Text, "max 100000"),
    ("memory.min", Form::Bytes, "1073741824"),
    ("memory.low", Form::Bytes, "1073741824"),
    ("memory.high", Form::Bytes, "2147483648"),
    ("io.weight", Form::Text, "default 200"),
    ("cpuset.cpus.exclusive", Form::Cpus, "4-7"),
    ("cpuset.cpus.partition", Form::Text, "isolated"),
];

fn group(container: usize) -> String {
    format!(
        "sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{container:032x}.slice/cri-containerd-{container:064x}.scope"
    )
}

fn settings() -> Settings {
    let slots = (0..CONTAINERS).flat_map(|container| {
        FILES.iter().map(move |(file, form, value)| {
            let setting = Setting {
                form: form.clone(),
                value: (*value).to_owned(),
                unit: format!("default/web-{container}/server"),
                reason: "as wanted".to_owned(),
            };
            (Slot::file(format!("{}/{file}", group(container))), setting)
        })
    });
    slots.collect()
}

fn observed(settings: &Settings, is_right: bool) -> Observed {
    let text = |setting: &Setting| if is_right { setting.value.clone() } else { "0".to_owned() };
    settings.iter().map(|(slot, setting)| (slot.path.clone(), Ok(text(setting)))).collect()
}

fn bench(c: &mut Criterion) {
    let settings = settings();
    let none = BTreeMap::new();
    let (right, wrong) = (observed(&settings, true), observed(&settings, false));
    c.bench_function("plan/250-containers/all-right", |b| {
        b.iter(|| plan_files(black_box(&settings), &right, &none));
    });
    c.bench_function("plan/250-containers/all-wrong", |b| {
        b.iter(|| plan_files(black_box(&settings), &wrong, &none));
    });
    // Not on a disk: its own work would be most of it.
    let root = tempfile::tempdir_in("/dev/shm").unwrap();
    for container in 0..CONTAINERS {
        let directory = root.path().join(group(container));
        fs::create_dir_all(&directory).unwrap();
        for (file, _, value) in FILES {
            fs::write(directory.join(file), value).unwrap();
        }
    }
    let mut kernel = DiskKernel::open(root.path()).unwrap();
    c.bench_function("sweep/250-containers/all-right", |b| {
        b.iter(|| {
            let observed = observe(&mut kernel, files_to_read(&settings, &none));
            let plan = plan_files(&settings, &observed, &none);
            assert!(plan.is_empty());
        });
    });
    let plan = plan_files(&settings, &wrong, &none);
    c.bench_function("apply/250-containers/all-wrong", |b| {
        b.iter_batched(|| (), |()| apply(&mut kernel, &plan), BatchSize::PerIteration);
    });
}

criterion_group!(benches, bench);
criterion_main!(benches);
