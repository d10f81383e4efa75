//! EAL's arguments, from one string.

use rustix::thread::CpuSet;

/// Options that choose the CPUs of EAL's own threads.
const CPU_OPTIONS: [&str; 5] = ["-l", "-c", "--lcores", "-s", "-S"];

/// Splits the text as a shell does; `None` if a quotation mark is not closed.
///
/// Unless it is told otherwise, EAL starts a thread for each CPU. The workers are coua's own
/// threads, so if the text does not choose, `--lcores` asks for a single thread, which may run
/// wherever this thread may.
pub(super) fn split(text: &str, allowed: &CpuSet) -> Option<Vec<String>> {
    let mut arguments = shlex::split(text)?;
    let chooses = |argument: &String| {
        CPU_OPTIONS.iter().any(|option| {
            let rest = argument.strip_prefix(option);
            rest.is_some_and(|rest| {
                rest.is_empty() || rest.starts_with('=') || !option.starts_with("--")
            })
        })
    };
    if !arguments.iter().any(chooses) {
        arguments.push(format!("--lcores=0@({})", list(allowed)));
    }
    arguments.insert(0, "coua".to_owned());
    Some(arguments)
}

fn list(allowed: &CpuSet) -> String {
    let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let cpus: Vec<String> = cpus.map(|cpu| cpu.to_string()).collect();
    cpus.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_two() -> CpuSet {
        let mut set = CpuSet::new();
        set.set(0);
        set.set(3);
        set
    }

    fn strings(of: &[&str]) -> Option<Vec<String>> {
        Some(of.iter().map(|text| (*text).to_owned()).collect())
    }

    #[test]
    fn words_are_those_of_a_shell() {
        assert_eq!(
            split(r#"-l 1 --vdev="net_memif0,socket=/a b" '--x'"#, &of_two()),
            strings(&["coua", "-l", "1", "--vdev=net_memif0,socket=/a b", "--x"])
        );
        assert_eq!(split("--vdev='net_tap0", &of_two()), None);
    }

    #[test]
    fn one_thread_is_asked_for_unless_the_string_chooses() {
        assert_eq!(
            split("--no-pci", &of_two()),
            strings(&["coua", "--no-pci", "--lcores=0@(0,3)"])
        );
        for choice in ["-l1", "-l 1", "-c 0x3", "--lcores=1", "--lcores 1", "-s 1"] {
            let arguments = split(choice, &of_two()).expect("well formed");
            assert!(
                !arguments.iter().any(|argument| argument.contains("0@")),
                "{choice}: {arguments:?}"
            );
        }
        let logged = split("--log-level=8", &of_two()).expect("well formed");
        assert_eq!(logged.len(), 3, "{logged:?}");
    }
}
