//! The kinds of `bayplan_failures_total`. All are there from the start: what appears with its first value cannot be alerted on.

/// A kind, and what has happened; as in `docs/metrics.md`.
pub(super) const FAILURES: [(&str, &str); 42] = [
    (
        "undecided",
        "no decision in time; what `onFailure` says was done. Or a call could not be read and `onFailure` is `closed`. Or a bug has ended the task that decides, and the call was refused",
    ),
    ("crowded", "refused because too many calls waited (`maxWaitingCalls`)"),
    ("late", "an event of kubelet's waited too long for its turn"),
    (
        "not_known",
        "a creation or a resize was answered with `UNAVAILABLE` because no whole journal was found and the runtime had not told yet what runs",
    ),
    ("late_disks", "a container was placed before it was known which disks its volumes are on"),
    (
        "late_class",
        "a container was created without the policy of threads of its scheduling class (`schedulingClasses`)",
    ),
    ("late_files", "a container was started before its kernel files were written"),
    (
        "late_huge_pages",
        "a container was placed before it was known which huge pages others use now",
    ),
    ("late_pod", "a container was placed without what kubelet knows of its pod (`kubelet`)"),
    ("passed_through", "a call could not be read, and went on unchanged"),
    (
        "other_version",
        "a call in a version of CRI that is not read went on unchanged, so nothing was decided; the log names the method once",
    ),
    ("no_capacity", "shares because there was no room for exclusive CPUs (`onNoCapacity`)"),
    ("group", "a group could not be made, or could not have the CPUs that it needs (`groups`)"),
    (
        "config_undone",
        "a change of `groups` was taken back, because the runtime did not take the update of a container",
    ),
    ("huge_pages", "placed although the machine has too few huge pages"),
    ("not_understood", "an annotation, a label or a cgroup parent"),
    ("no_effect", "an annotation or a label does nothing for a container; `explain` says why"),
    ("not_allowed", "an annotation or a label that `permissions` do not let the namespace have"),
    ("unknown_class", "an annotation names a class that the configuration lacks"),
    (
        "over_ceiling",
        "an annotation would keep more CPUs from others than `closedCpus` lets a pod or a namespace",
    ),
    ("reserved_full", "containers on the reserved CPUs request more than these are"),
    ("journal", "the journal could not be written; it is tried again at the next change"),
    (
        "originals",
        "what kernel files said before could not be read or kept, so they were not changed",
    ),
    ("history", "entries of the history could not be written"),
    ("baselines", "what is usual for workloads could not be kept for the next start"),
    ("sync", "the runtime did not answer when it was asked what runs"),
    (
        "not_let_go",
        "a creation was answered while the CPU set of another container could not be shrunk",
    ),
    (
        "resources_file",
        "the file that names a container's CPUs could not be written (`resourcesDirectories`)",
    ),
    (
        "metrics_address",
        "`metricsAddress` could not be listened on (another program has the port); it is tried again",
    ),
    ("task", "a bug has ended a part of the daemon; `/readyz` and the log name it"),
    ("displaced", "no room for an exclusive container that lost CPUs, so it shares"),
    (
        "not_alone",
        "CPUs that were chosen for a pod that runs are offline, reserved or another container's, too",
    ),
    ("reserved_offline", "some of `reservedCpus` are offline"),
    ("isolated_shared", "nothing is online but isolated CPUs, which are shared now"),
    ("not_adopted", "a container that runs could not be taken over where it is"),
    ("not_restored", "a container of the journal could not be given its place again"),
    (
        "pod_share",
        "containers that share what their pod asked for could not have all of it, after one of them had ended or the pod was resized; the next such occasion tries again",
    ),
    ("put_back", "a container lost its place in a resize that was refused: a bug"),
    (
        "resize_failed",
        "the runtime has not made a resize, so the container has its earlier place again, or shares where there is no room for that",
    ),
    ("stale_offer", "the ledger had changed under an offer: a bug"),
    ("not_moved", "a plan of compaction did not fit the ledger: a bug"),
    ("not_narrowed", "memory nodes could not be taken away as planned: a bug"),
];
