//! Compares the bindings with libfabric's headers, where those are installed.

#![allow(clippy::print_stderr, reason = "says what was left out")]

use std::fmt::Write;
use std::io::ErrorKind;
use std::mem::offset_of;
use std::process::Command;

use super::bindings::*;

/// What the headers are asked, and what the bindings say.
struct Asked {
    program: String,
    expected: Vec<(String, u64)>,
}

impl Asked {
    fn ask(&mut self, expression: &str, expected: u64) {
        let _ = writeln!(
            self.program,
            "  printf(\"%llu\\n\", (unsigned long long)({expression}));"
        );
        self.expected.push((expression.to_owned(), expected));
    }
}

/// Asks for the length of a type and the offsets of its fields, which mostly have the same names.
macro_rules! layout {
    ($asked:ident, $rust:ident, $c:literal, [$($field:ident $(= $name:literal)?),* $(,)?]) => {
        $asked.ask(concat!("sizeof(struct ", $c, ")"), size_of::<$rust>() as u64);
        $({
            #[allow(unused_mut, unused_assignments, reason = "not every field has another name")]
            let mut name = stringify!($field);
            $(name = $name;)?
            $asked.ask(&format!("offsetof(struct {}, {name})", $c), offset_of!($rust, $field) as u64);
        })*
    };
}

/// Asks for numbers, which have the same names.
macro_rules! numbers {
    ($asked:ident, [$($name:ident),* $(,)?]) => {
        $($asked.ask(stringify!($name), $name as u64);)*
    };
}

fn all() -> Asked {
    let mut asked = Asked {
        program: String::new(),
        expected: Vec::new(),
    };
    layout!(asked, Fid, "fid", [fclass, context, ops]);
    layout!(
        asked,
        Ops,
        "fi_ops",
        [size, close, bind, control, ops_open, tostr, ops_set]
    );
    layout!(
        asked,
        TxAttr,
        "fi_tx_attr",
        [
            caps,
            mode,
            op_flags,
            msg_order,
            comp_order,
            inject_size,
            size,
            iov_limit,
            rma_iov_limit,
            tclass
        ]
    );
    layout!(
        asked,
        RxAttr,
        "fi_rx_attr",
        [
            caps,
            mode,
            op_flags,
            msg_order,
            comp_order,
            total_buffered_recv,
            size,
            iov_limit
        ]
    );
    layout!(
        asked,
        EpAttr,
        "fi_ep_attr",
        [
            ep_type = "type",
            protocol,
            protocol_version,
            max_msg_size,
            msg_prefix_size,
            max_order_raw_size,
            max_order_war_size,
            max_order_waw_size,
            mem_tag_format,
            tx_ctx_cnt,
            rx_ctx_cnt,
            auth_key_size,
            auth_key
        ]
    );
    layout!(
        asked,
        DomainAttr,
        "fi_domain_attr",
        [
            domain,
            name,
            threading,
            control_progress,
            data_progress,
            resource_mgmt,
            av_type,
            mr_mode,
            mr_key_size,
            cq_data_size,
            cq_cnt,
            ep_cnt,
            tx_ctx_cnt,
            rx_ctx_cnt,
            max_ep_tx_ctx,
            max_ep_rx_ctx,
            max_ep_stx_ctx,
            max_ep_srx_ctx,
            cntr_cnt,
            mr_iov_limit,
            caps,
            mode,
            auth_key,
            auth_key_size,
            max_err_data,
            mr_cnt,
            tclass
        ]
    );
    layout!(
        asked,
        FabricAttr,
        "fi_fabric_attr",
        [fabric, name, prov_name, prov_version, api_version]
    );
    layout!(
        asked,
        Info,
        "fi_info",
        [
            next,
            caps,
            mode,
            addr_format,
            src_addrlen,
            dest_addrlen,
            src_addr,
            dest_addr,
            handle,
            tx_attr,
            rx_attr,
            ep_attr,
            domain_attr,
            fabric_attr,
            nic
        ]
    );
    layout!(asked, FidFabric, "fid_fabric", [fid, ops, api_version]);
    layout!(
        asked,
        FabricOps,
        "fi_ops_fabric",
        [size, domain, passive_ep, eq_open, wait_open, trywait]
    );
    layout!(asked, FidDomain, "fid_domain", [fid, ops, mr]);
    layout!(
        asked,
        DomainOps,
        "fi_ops_domain",
        [size, av_open, cq_open, endpoint, scalable_ep]
    );
    layout!(asked, MrOps, "fi_ops_mr", [size, reg, regv, regattr]);
    layout!(asked, FidMr, "fid_mr", [fid, mem_desc, key]);
    layout!(asked, FidPep, "fid_pep", [fid, ops, cm]);
    layout!(
        asked,
        FidEp,
        "fid_ep",
        [fid, ops, cm, msg, rma, tagged, atomic, collective]
    );
    layout!(
        asked,
        CmOps,
        "fi_ops_cm",
        [
            size, setname, getname, getpeer, connect, listen, accept, reject, shutdown, join
        ]
    );
    layout!(asked, IoVec, "iovec", [base = "iov_base", len = "iov_len"]);
    layout!(
        asked,
        Msg,
        "fi_msg",
        [msg_iov, desc, iov_count, addr, context, data]
    );
    layout!(
        asked,
        MsgOps,
        "fi_ops_msg",
        [
            size, recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata
        ]
    );
    layout!(asked, RmaIov, "fi_rma_iov", [addr, len, key]);
    layout!(
        asked,
        MsgRma,
        "fi_msg_rma",
        [
            msg_iov,
            desc,
            iov_count,
            addr,
            rma_iov,
            rma_iov_count,
            context,
            data
        ]
    );
    layout!(
        asked,
        RmaOps,
        "fi_ops_rma",
        [
            size, read, readv, readmsg, write, writev, writemsg, inject, writedata, injectdata
        ]
    );
    layout!(
        asked,
        EqAttr,
        "fi_eq_attr",
        [size, flags, wait_obj, signaling_vector, wait_set]
    );
    layout!(asked, FidEq, "fid_eq", [fid, ops]);
    layout!(
        asked,
        EqOps,
        "fi_ops_eq",
        [size, read, readerr, write, sread, strerror]
    );
    layout!(
        asked,
        EqErrEntry,
        "fi_eq_err_entry",
        [fid, context, data, err, prov_errno, err_data, err_data_size]
    );
    layout!(asked, EqCmEntry, "fi_eq_cm_entry", [fid, info]);
    layout!(
        asked,
        CqAttr,
        "fi_cq_attr",
        [
            size,
            flags,
            format,
            wait_obj,
            signaling_vector,
            wait_cond,
            wait_set
        ]
    );
    layout!(asked, FidCq, "fid_cq", [fid, ops]);
    layout!(
        asked,
        CqOps,
        "fi_ops_cq",
        [
            size, read, readfrom, readerr, sread, sreadfrom, signal, strerror
        ]
    );
    layout!(
        asked,
        CqDataEntry,
        "fi_cq_data_entry",
        [op_context, flags, len, buf, data]
    );
    layout!(
        asked,
        CqErrEntry,
        "fi_cq_err_entry",
        [
            op_context,
            flags,
            len,
            buf,
            data,
            tag,
            olen,
            err,
            prov_errno,
            err_data,
            err_data_size
        ]
    );
    numbers!(
        asked,
        [
            FI_MSG,
            FI_RMA,
            FI_READ,
            FI_WRITE,
            FI_RECV,
            FI_SEND,
            FI_TRANSMIT,
            FI_REMOTE_READ,
            FI_REMOTE_WRITE,
            FI_REMOTE_CQ_DATA,
            FI_COMPLETION,
            FI_SOURCE,
            FI_RX_CQ_DATA,
            FI_EP_MSG,
            FI_THREAD_DOMAIN,
            FI_MR_LOCAL,
            FI_MR_VIRT_ADDR,
            FI_MR_ALLOCATED,
            FI_MR_PROV_KEY,
            FI_GETWAIT,
            FI_ENABLE,
            FI_WAIT_FD,
            FI_CQ_FORMAT_DATA,
            FI_CONNREQ,
            FI_CONNECTED,
            FI_SHUTDOWN,
            FI_EAGAIN,
            FI_EAVAIL
        ]
    );
    asked.ask("FI_VERSION(1, 17)", u64::from(API_VERSION));
    asked
}

const HEADERS: &str = "#include <stddef.h>\n#include <stdio.h>\n#include <sys/uio.h>\n#include <rdma/fabric.h>\n\
    #include <rdma/fi_cm.h>\n#include <rdma/fi_domain.h>\n#include <rdma/fi_endpoint.h>\n#include <rdma/fi_eq.h>\n\
    #include <rdma/fi_errno.h>\n#include <rdma/fi_rma.h>\n";

#[test]
fn the_bindings_are_as_the_headers_have_it() {
    if !std::path::Path::new("/usr/include/rdma/fabric.h").exists() {
        eprintln!("left out: libfabric's headers are not installed (libfabric-dev)");
        return;
    }
    let asked = all();
    let folder = std::env::temp_dir().join(format!("coua-libfabric-layout-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (source, program) = (folder.join("layout.c"), folder.join("layout"));
    let text = format!(
        "{HEADERS}int main(void) {{\n{}  return 0;\n}}\n",
        asked.program
    );
    std::fs::write(&source, text).expect("a file");
    let compiled = Command::new("cc")
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .output();
    let compiled = match compiled {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("left out: there is no C compiler");
            return;
        }
        compiled => compiled.expect("it runs"),
    };
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let output = Command::new(&program).output().expect("it runs");
    let _ = std::fs::remove_dir_all(&folder);
    let said = String::from_utf8(output.stdout).expect("numbers");
    let said: Vec<u64> = said
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert_eq!(said.len(), asked.expected.len());
    for ((expression, expected), said) in asked.expected.iter().zip(said) {
        assert_eq!(said, *expected, "{expression}");
    }
}
