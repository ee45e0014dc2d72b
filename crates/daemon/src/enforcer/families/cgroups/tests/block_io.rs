//! Limits of block I/O, for disks that come and go.

use super::*;

#[test]
fn classes_of_block_io_are_chosen_or_those_of_the_qos_class() {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("dev/vda", "");
    put("sys/class/block/vda/dev", "254:0\n");
    let config = format!(
        "hostRoot: {}\n\
         cpu: {{liftQuota: false}}\n\
         blockIo:\n  classes:\n    slow:\n      - Devices: [/dev/vd*]\n        ThrottleWriteBps: 10M\n    \
         Guaranteed:\n      - Weight: 200\n",
        root.path().display()
    );
    let [slow, lost] = ["slow", "lost"].map(|class| [("bayplan.dev/blockioclass", class)]);
    check(
        &mut kernel(&["usual", "slow", "lost"]),
        &config,
        vec![
            occupant("usual", "0", "", &[]),
            occupant("slow", "0", "", &slow),
            occupant("lost", "0", "", &lost),
        ],
        expect![[r#"
            set    /sys/fs/cgroup/kubepods/pod-slow/id-slow/io.max [254:0] (none) -> rbps=max wbps=10000000 riops=max wiops=max  (n/slow/c: block I/O class "slow")
            set    /sys/fs/cgroup/kubepods/pod-usual/id-usual/io.weight [default] 100 -> 200  (n/usual/c: block I/O class "Guaranteed")
            set    /sys/fs/cgroup/kubepods/pod-usual/io.weight [default] 100 -> 200  (n/usual/c: block I/O class "Guaranteed" in the pod)
            ! n/lost/c: there is no block I/O class "lost"; those of the configuration: Guaranteed, slow
        "#]],
    );
}

/// A node in files, and the disk `sdb` that comes and goes.
struct DiskScene {
    root: tempfile::TempDir,
    kernel: Arc<Mutex<FakeKernel>>,
}

impl DiskScene {
    const LIMITS: &str = "sys/fs/cgroup/kubepods/pod-slow/id-slow/io.max";
    const DISK: &str = "sys/dev/block/8:16/dev";

    fn new() -> DiskScene {
        let mut kernel = kernel(&["slow"]).with_rule("/io.max", |files, path, text| {
            if !files.contains_key(DiskScene::DISK) {
                return Err(Errno::ENODEV);
            }
            files.insert(path.to_owned(), format!("{text}\n"));
            Ok(())
        });
        // Another disk that stays.
        kernel.files.insert("sys/dev/block/8:0/dev".to_owned(), "8:0\n".to_owned());
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("dev")).unwrap();
        DiskScene { root, kernel: Arc::new(Mutex::new(kernel)) }
    }

    /// Another program limits it as soon as it is there.
    fn plug(&self) {
        for (path, text) in [("sys/class/block/sdb/dev", "8:16\n"), ("dev/sdb", "")] {
            let path = self.root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let files = &mut self.kernel.lock().unwrap().files;
        files.insert(Self::DISK.to_owned(), "8:16\n".to_owned());
        let line = "8:16 rbps=max wbps=5000000 riops=max wiops=max\n";
        files.insert(Self::LIMITS.to_owned(), line.to_owned());
    }

    /// With the disk the kernel forgets all limits for it.
    fn pull(&self) {
        fs::remove_file(self.root.path().join("dev/sdb")).unwrap();
        fs::remove_dir_all(self.root.path().join("sys/class/block/sdb")).unwrap();
        let files = &mut self.kernel.lock().unwrap().files;
        files.remove(Self::DISK);
        files.insert(Self::LIMITS.to_owned(), String::new());
    }

    fn limits(&self) -> String {
        self.kernel.lock().unwrap().files[Self::LIMITS].trim().to_owned()
    }
}

/// The limit that another program had set was written again and again for a disk that was gone, which counted as a fight with that program.
#[test]
fn a_disk_has_its_limit_when_it_comes_and_leaves_nothing_to_do_when_it_goes() {
    const OURS: &str = "8:16 rbps=max wbps=10000000 riops=max wiops=max";
    let scene = DiskScene::new();
    let config = format!(
        "hostRoot: {}\ncpu: {{liftQuota: false}}\n\
         blockIo: {{classes: {{slow: [{{Devices: [/dev/sd?], ThrottleWriteBps: 10M}}]}}}}\n",
        scene.root.path().display()
    );
    let config = parse_config(Path::new("c"), &config).unwrap();
    let slow = occupant("slow", "0", "", &[("bayplan.dev/blockioclass", "slow")]);
    let occupancy = Occupancy { occupants: vec![slow], ..Occupancy::default() };
    let state = tempfile::tempdir().unwrap();
    let originals = Originals::open(Arc::new(SoundDisk), state.path(), None).unwrap().0;
    let mut enforcer = Enforcer::new(Box::new(Arc::clone(&scene.kernel)), originals);
    let mut secs = 0;
    let mut look = |expected: &str, remembered: usize| {
        secs += 30;
        let done = enforcer.enforce(&config, &occupancy, Duration::from_secs(secs));
        assert_eq!((done.failures, done.notices), (vec![], vec![]), "after {secs} s");
        assert_eq!((done.failing.len(), done.contested, done.changed), (0, 0, remembered));
        assert_eq!(scene.limits(), expected, "after {secs} s");
        let none = "block I/O class \"slow\": /dev/sd?: there is no such block device";
        assert_eq!(done.problems, if expected.is_empty() { vec![none] } else { vec![] });
    };
    look("", 0);
    for _ in 0..2 {
        scene.plug();
        look(OURS, 1);
        look(OURS, 1);
        scene.pull();
        for _ in 0..10 {
            look("", 0);
        }
    }
    scene.plug();
    look(OURS, 1);
    scene.pull();
    assert_eq!(enforcer.give_back().failures, [""; 0]);
}
