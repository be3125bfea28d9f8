//! The binary interface as it is written down here, against the headers that are installed.

use std::{fmt::Write, mem::offset_of, path::Path, process::Command};

use pinfold_fi::ffi::{atomic::*, ep::*, info::*, object::*, queue::*};

/// A structure's length, or a field's place: its name in C, and what Rust has.
struct Fact {
    expression: String,
    here: usize,
}

/// The facts of structures: `Type = "struct name": field, field as "its name in C"`.
macro_rules! facts {
    ($($type:ident = $c:literal: $($field:ident $(as $name:literal)?),*;)*) => {{
        let mut facts = Vec::new();
        $(
            facts.push(Fact {
                expression: format!("sizeof(struct {})", $c),
                here: size_of::<$type>(),
            });
            $(
                #[allow(unused_mut, unused_assignments)]
                let mut name = stringify!($field);
                $(name = $name;)?
                facts.push(Fact {
                    expression: format!("offsetof(struct {}, {name})", $c),
                    here: offset_of!($type, $field),
                });
            )*
        )*
        facts
    }};
}

fn facts() -> Vec<Fact> {
    facts! {
        FiInfo = "fi_info": next, caps, mode, addr_format, src_addrlen, dest_addrlen, src_addr,
            dest_addr, handle, tx_attr, rx_attr, ep_attr, domain_attr, fabric_attr, nic;
        FiTxAttr = "fi_tx_attr": caps, mode, op_flags, msg_order, comp_order, inject_size, size,
            iov_limit, rma_iov_limit, tclass;
        FiRxAttr = "fi_rx_attr": caps, mode, op_flags, msg_order, comp_order,
            total_buffered_recv, size, iov_limit;
        FiEpAttr = "fi_ep_attr": kind as "type", protocol, protocol_version, max_msg_size,
            msg_prefix_size, max_order_raw_size, max_order_war_size, max_order_waw_size,
            mem_tag_format, tx_ctx_cnt, rx_ctx_cnt, auth_key_size, auth_key;
        FiDomainAttr = "fi_domain_attr": domain, name, threading, control_progress,
            data_progress, resource_mgmt, av_type, mr_mode, mr_key_size, cq_data_size, cq_cnt,
            ep_cnt, tx_ctx_cnt, rx_ctx_cnt, max_ep_tx_ctx, max_ep_rx_ctx, max_ep_stx_ctx,
            max_ep_srx_ctx, cntr_cnt, mr_iov_limit, caps, mode, auth_key, auth_key_size,
            max_err_data, mr_cnt, tclass;
        FiFabricAttr = "fi_fabric_attr": fabric, name, prov_name, prov_version, api_version;
        Fid = "fid": class as "fclass", context, ops;
        FiOps = "fi_ops": size, close, bind, control, ops_open, tostr, ops_set;
        FiProvider = "fi_provider": version, fi_version, context, name, getinfo, fabric, cleanup;
        FidFabric = "fid_fabric": fid, ops, api_version;
        FiOpsFabric = "fi_ops_fabric": size, domain, passive_ep, eq_open, wait_open, trywait,
            domain2;
        FidDomain = "fid_domain": fid, ops, mr;
        FiOpsDomain = "fi_ops_domain": size, av_open, cq_open, endpoint, scalable_ep, cntr_open,
            poll_open, stx_ctx, srx_ctx, query_atomic, query_collective, endpoint2;
        FiOpsMr = "fi_ops_mr": size, reg, regv, regattr;
        FidMr = "fid_mr": fid, mem_desc, key;
        FiMrAttr = "fi_mr_attr": mr_iov, iov_count, access, offset, requested_key, context,
            auth_key_size, auth_key, iface, device;
        FiAvAttr = "fi_av_attr": kind as "type", rx_ctx_bits, count, ep_per_node, name, map_addr,
            flags;
        FidAv = "fid_av": fid, ops;
        FiOpsAv = "fi_ops_av": size, insert, insertsvc, insertsym, remove, lookup, straddr, av_set;
        FiEqAttr = "fi_eq_attr": size, flags, wait_obj, signaling_vector, wait_set;
        FiEqEntry = "fi_eq_entry": fid, context, data;
        FiEqErrEntry = "fi_eq_err_entry": fid, context, data, err, prov_errno, err_data,
            err_data_size;
        FiOpsEq = "fi_ops_eq": size, read, readerr, write, sread, strerror;
        FiCqAttr = "fi_cq_attr": size, flags, format, wait_obj, signaling_vector, wait_cond,
            wait_set;
        FiOpsCq = "fi_ops_cq": size, read, readfrom, readerr, sread, sreadfrom, signal, strerror;
        FiCqTaggedEntry = "fi_cq_tagged_entry": context as "op_context", flags, len, buf, data,
            tag;
        FiCqErrEntry = "fi_cq_err_entry": context as "op_context", flags, len, buf, data, tag,
            olen, err, prov_errno, err_data, err_data_size;
        FiCntrAttr = "fi_cntr_attr": events, wait_obj, wait_set, flags;
        FiOpsCntr = "fi_ops_cntr": size, read, readerr, add, set, wait, adderr, seterr;
        FidEp = "fid_ep": fid, ops, cm, msg, rma, tagged, atomic, collective;
        FiOpsEp = "fi_ops_ep": size, cancel, getopt, setopt, tx_ctx, rx_ctx, rx_size_left,
            tx_size_left;
        FiOpsCm = "fi_ops_cm": size, setname, getname, getpeer, connect, listen, accept, reject,
            shutdown, join;
        FiMsg = "fi_msg": msg_iov, desc, iov_count, addr, context, data;
        FiOpsMsg = "fi_ops_msg": size, recv, recvv, recvmsg, send, sendv, sendmsg, inject,
            senddata, injectdata;
        FiMsgTagged = "fi_msg_tagged": msg_iov, desc, iov_count, addr, tag, ignore, context, data;
        FiOpsTagged = "fi_ops_tagged": size, recv, recvv, recvmsg, send, sendv, sendmsg, inject,
            senddata, injectdata;
        FiRmaIov = "fi_rma_iov": addr, len, key;
        FiMsgRma = "fi_msg_rma": msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, context,
            data;
        FiOpsRma = "fi_ops_rma": size, read, readv, readmsg, write, writev, writemsg, inject,
            writedata, injectdata;
        FiIoc = "fi_ioc": addr, count;
        FiRmaIoc = "fi_rma_ioc": addr, count, key;
        FiMsgAtomic = "fi_msg_atomic": msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count,
            datatype, op, context, data;
        FiOpsAtomic = "fi_ops_atomic": size, write, writev, writemsg, inject, readwrite,
            readwritev, readwritemsg, compwrite, compwritev, compwritemsg, writevalid,
            readwritevalid, compwritevalid;
    }
}

const HEADERS: &[&str] = &[
    "stddef.h",
    "stdio.h",
    "rdma/fabric.h",
    "rdma/fi_domain.h",
    "rdma/fi_endpoint.h",
    "rdma/fi_eq.h",
    "rdma/fi_cm.h",
    "rdma/fi_tagged.h",
    "rdma/fi_rma.h",
    "rdma/fi_atomic.h",
    "rdma/providers/fi_prov.h",
];

#[test]
fn structures_lie_as_in_the_headers() {
    if !Path::new("/usr/include/rdma/fabric.h").exists() {
        return pinfold_tests::skip("no headers of libfabric; run: apt-get install libfabric-dev");
    }
    let facts = facts();
    let mut source = String::new();
    HEADERS.iter().for_each(|header| writeln!(source, "#include <{header}>").unwrap());
    source.push_str("int main(void) {\n");
    for fact in &facts {
        writeln!(source, "printf(\"%zu\\n\", (size_t) {});", fact.expression).unwrap();
    }
    source.push_str("return 0; }\n");
    let place = tempfile::tempdir().unwrap();
    let (file, program) = (place.path().join("layout.c"), place.path().join("layout"));
    std::fs::write(&file, source).unwrap();
    let built = match Command::new("cc").arg("-o").arg(&program).arg(&file).output() {
        Ok(built) => built,
        Err(_) => return pinfold_tests::skip("no C compiler"),
    };
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let printed = Command::new(&program).output().unwrap().stdout;
    let there = String::from_utf8(printed).unwrap();
    let there: Vec<usize> = there.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(there.len(), facts.len());
    for (fact, there) in facts.iter().zip(there) {
        // Later versions put fields behind.
        let is_length = fact.expression.starts_with("sizeof");
        let holds = if is_length { fact.here <= there } else { fact.here == there };
        assert!(holds, "{}: {} in the headers, {} here", fact.expression, there, fact.here);
    }
}
