//! Names of CPU flags in Node Feature Discovery. In: flags of `/proc/cpuinfo`. Out: the names that NFD has for them; flags without such a name are left out.

use std::collections::BTreeSet;

use bayplan_host::FeatureFacts;

/// Flags of x86 with a name that is another text, by the kernel's name.
const OTHER: [(&str, &str); 34] = [
    ("3dnow", "AMD3DNOW"),
    ("3dnowext", "AMD3DNOWEXT"),
    ("abm", "LZCNT"),
    ("aes", "AESNI"),
    ("amd_ppin", "PPIN"),
    ("apx", "APX_F"),
    ("arch_capabilities", "IA32_ARCH_CAP"),
    ("core_capabilities", "IA32_CORE_CAP"),
    ("cpb", "CPBOOST"),
    ("cx8", "CMPXCHG8"),
    ("flush_l1d", "FLUSH_L1D"),
    ("fma", "FMA3"),
    ("fpu", "X87"),
    ("ht", "HTT"),
    ("ibt", "CETIBT"),
    ("intel_ppin", "PPIN"),
    ("lahf_lm", "LAHF"),
    ("md_clear", "MD_CLEAR"),
    ("nrip_save", "NRIPS"),
    ("pclmulqdq", "CLMUL"),
    ("pni", "SSE3"),
    ("rtm_always_abort", "RTM_ALWAYS_ABORT"),
    ("sev_es", "SEV_ES"),
    ("sev_snp", "SEV_SNP"),
    ("sgx_lc", "SGXLC"),
    ("sha_ni", "SHA"),
    ("sm3", "SM3_X86"),
    ("sm4", "SM4_X86"),
    ("sme_coherent", "SME_COHERENT"),
    ("sse4_1", "SSE4"),
    ("sse4_2", "SSE42"),
    ("tdx_guest", "TDX_GUEST"),
    ("topoext", "TOPEXT"),
    ("user_shstk", "CETSS"),
];

/// Names of x86 that are the kernel's in capitals and without `_`.
const SAME: [&str; 103] = [
    "ADX",
    "AMXBF16",
    "AMXCOMPLEX",
    "AMXFP16",
    "AMXINT8",
    "AMXTILE",
    "AVX",
    "AVX10",
    "AVX2",
    "AVX512BF16",
    "AVX512BITALG",
    "AVX512BW",
    "AVX512CD",
    "AVX512DQ",
    "AVX512ER",
    "AVX512F",
    "AVX512FP16",
    "AVX512IFMA",
    "AVX512PF",
    "AVX512VBMI",
    "AVX512VBMI2",
    "AVX512VL",
    "AVX512VNNI",
    "AVX512VP2INTERSECT",
    "AVX512VPOPCNTDQ",
    "AVXIFMA",
    "AVXNECONVERT",
    "AVXVNNI",
    "AVXVNNIINT16",
    "AVXVNNIINT8",
    "BMI1",
    "BMI2",
    "CLDEMOTE",
    "CLZERO",
    "CMOV",
    "CMPCCXADD",
    "CPPC",
    "CX16",
    "ENQCMD",
    "ERMS",
    "F16C",
    "FMA4",
    "FRED",
    "FSRM",
    "FXSR",
    "FXSROPT",
    "GFNI",
    "HLE",
    "HRESET",
    "HYPERVISOR",
    "IBPB",
    "IBRS",
    "IBS",
    "INVLPGB",
    "LAM",
    "MMX",
    "MMXEXT",
    "MOVBE",
    "MOVDIR64B",
    "MOVDIRI",
    "MPX",
    "MSRLIST",
    "NX",
    "OSXSAVE",
    "PCONFIG",
    "POPCNT",
    "PREFETCHI",
    "RDPRU",
    "RDRAND",
    "RDSEED",
    "RDTSCP",
    "RTM",
    "SBPB",
    "SERIALIZE",
    "SEV",
    "SGX",
    "SME",
    "SSE",
    "SSE2",
    "SSE4A",
    "SSSE3",
    "STIBP",
    "SUCCOR",
    "SVM",
    "SYSCALL",
    "SYSEE",
    "TBM",
    "TME",
    "TSXLDTRK",
    "VAES",
    "VMPL",
    "VMX",
    "VPCLMULQDQ",
    "VTE",
    "WAITPKG",
    "WBNOINVD",
    "WRMSRNS",
    "XGETBV1",
    "XOP",
    "XSAVE",
    "XSAVEC",
    "XSAVEOPT",
    "XSAVES",
];

/// Names of ARM, which are the kernel's in capitals.
const ARM: [&str; 23] = [
    "AES", "ASIMD", "ASIMDDP", "ASIMDHP", "ASIMDRDM", "ATOMICS", "CPUID", "CRC32", "DCPOP",
    "EVTSTRM", "FCMA", "FP", "FPHP", "JSCVT", "LRCPC", "PMULL", "SHA1", "SHA2", "SHA3", "SHA512",
    "SM3", "SM4", "SVE",
];

/// The names of the flags of this node's CPUs.
pub(crate) fn cpuid_names(facts: &FeatureFacts) -> BTreeSet<String> {
    // Only x86 tells a vendor by name.
    let is_x86 = facts.cpu_model.contains_key("vendor_id");
    let name = |flag: &String| if is_x86 { x86_name(flag) } else { arm_name(flag) };
    facts.cpu_flags.iter().filter_map(name).map(str::to_owned).collect()
}

fn x86_name(flag: &str) -> Option<&'static str> {
    let other = OTHER.iter().find(|(kernel, _)| *kernel == flag);
    let plain = flag.replace('_', "").to_uppercase();
    let same = || SAME.iter().find(|it| **it == plain).copied();
    other.map(|(_, name)| *name).or_else(same)
}

fn arm_name(flag: &str) -> Option<&'static str> {
    let plain = flag.to_uppercase();
    ARM.iter().find(|it| **it == plain).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(vendor: Option<&str>, flags: &str, expected: &str) {
        let model = vendor.map(|it| ("vendor_id".to_owned(), it.to_owned()));
        let facts = FeatureFacts {
            cpu_flags: flags.split(' ').map(str::to_owned).collect(),
            cpu_model: model.into_iter().collect(),
            ..FeatureFacts::default()
        };
        let names = cpuid_names(&facts).into_iter().collect::<Vec<_>>();
        assert_eq!(names.join(" "), expected, "{flags}");
    }

    #[test]
    fn flags_have_the_names_of_nfd_or_none() {
        check(Some("GenuineIntel"), "aes amx_bf16 tdx_guest", "AESNI AMXBF16 TDX_GUEST");
        check(Some("AuthenticAMD"), "constant_tsc rep_good clwb cat_l3", "");
        check(None, "aes asimddp uscat", "AES ASIMDDP");
    }
}
