# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Forges Windows memory images that an unmodified Volatility 3 opens.

    from tests.forge import context, isf, kernels, vol
    from tests.forge.kernel import Kernel
    from tests.forge.obj import ring
    from tests.forge.paging import State
    from tests.forge.pe import Function
    from tests.forge.unloaded import UnloadedDll, remember_unloads
    from tests.forge.vad import EXECUTE_READWRITE

    kernel = Kernel(isf.load(path_of_a_kernel_isf), exports=["KeBugCheckEx"])   # any 64- or 32-bit PAE one
    known = kernels.load("win10-x64")                # or a table of our own: see kernels.KERNELS
    kernel = Kernel(known.table, **known.options(), cpus=2, nt_global_flag=0x2000)
    kernel.set("RtlpStackTraceDatabase", 0xFFFFA80000100000)     # global symbols by name
    kernel.space.write(0xFFFFA80000100000, b"...")               # any kernel address
    kernel.space.set_state(0xFFFFA80000101000, 0x1000, State.PAGEFILE)   # or TRANSITION, MISSING
    driver = kernel.module("tcpip.sys", exports={"Send": 0x1000}, ordinals={1: 0x1100},
                           functions=[Function(0x1000, 0x1080, 0x5800)],   # .pdata, RVAs
                           contents={0x5800: b"\\x01\\0\\0\\0"},             # bytes by RVA (.rdata here)
                           symbols={"Inner": 0x1040})            # makes its tiny ISF too
    kernel.unloaded("gone.sys", 0xFFFFF80350000000, 0xFFFFF80350010000)

    app = kernel.process("app.exe", pid=1000, session=1, nt_global_flag=0x1000)
    app.module("app.exe", dll=False)
    names = {"RtlpUnloadEventTrace": 0x7000, "RtlpStackTraceDatabase": 0x7800}
    ntdll = app.module("ntdll.dll", exports={"NtClose": 0x1100, "Fwd": "kernel32.Other"}, symbols=names)
    remember_unloads(ntdll, [UnloadedDll("gone.dll", 0x7FEFF000000, 0x8000)])
    app.region(0x10000000, b"bytes", size=0x3000)                # private memory with its VAD
    app.region(0x20000000, size=0x1000, file="\\\\a.dat")          # a mapped file's view
    app.region(0x30000000, b"\\x90", protection=EXECUTE_READWRITE)
    thread = app.thread(1004, start=ntdll.at("NtClose"), stack=b"top of the kernel stack")
    thread.kthread["TrapFrame"] = thread.stack_base - 0x190      # any member by its path
    thread.write_stack(frame_bytes, base=thread.stack_base)      # ends there, returns its start
    kernel.cpus[0].current(thread)                               # .stack("dpc"), .kprcb, .kpcr

    wow = app.wow64(nt_global_flag=0x1000)                       # its 32-bit half
    wow.module("ntdll.dll", exports={"NtClose": 0x1100})
    wow.thread(thread, stack=b"top of the 32-bit stack", context=b"32-bit CONTEXT")

    resource = kernel.obj("_ERESOURCE")                          # any structure, in a pool block
    resource["NumberOfSharedWaiters"] = 2
    ring(kernel.space, [kernel.symbol("ExpSystemResourcesList"), resource.at("SystemResourcesList")])
    file = kernel.pool.executive("_FILE_OBJECT", "File")         # behind an object header

    image = kernel.image()                                       # links the lists
    image.save(tmp_path / "a.raw")                               # .dmp, .raw.xz, .dmp.xz, bitmap=BITMAP
    symbols = image.install(tmp_path / "symbols")                # a private directory for -s
    listed = vol.run(tmp_path / "a.raw", "windows.pslist", symbols=symbols).rows   # the command line
    opened = context.open_image(image, tmp_path)                 # in this process, fast
    opened.context, opened.kernel, opened.rows(SomePlugin, pid=[1000])

`real_sets.process(kernel, real_sets.load(path))` embeds a database that Windows wrote.

All addresses are canonical. What a builder is given is in memory at once; lists, rings and VAD trees
are joined by `Kernel.image`, which may be called again after more was built. Each class' docstring
lists its keyword arguments: `kernel.Kernel`, `process.Process`, `thread.Thread`, `module.Spec`,
`wow64.Wow64`, `cpu.Cpu`, `obj.Obj`, `space.Space`, `pool.Pool`. The same calls give the same bytes, always.
"""
