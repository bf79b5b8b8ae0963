/** The page's style: one column, both colour schemes, narrow screens, print. */
export const STYLE = `
:root{color-scheme:light dark;--ink:#1b1f24;--muted:#57606a;--paper:#fff;--line:#d5dae0;--soft:#f4f6f8;--link:#0b5cad;\
--good:#00694d;--warn:#8a4b00}
@media (prefers-color-scheme:dark){:root{--ink:#e8eaed;--muted:#a8b0b9;--paper:#16191d;--line:#3a4149;--soft:#20252b;\
--link:#7db8f0;--good:#4cc9a0;--warn:#f0b35a}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto \
Sans",sans-serif;overflow-wrap:break-word}
main,header,footer{max-width:76rem;margin:0 auto;padding:0 1.25rem}
header{padding-top:1.5rem}
h1{font-size:1.75rem;line-height:1.2;margin:0 0 .5rem}
h2{font-size:1.3rem;margin:2.2rem 0 .6rem;padding-bottom:.25rem;border-bottom:1px solid var(--line)}
h3{font-size:1.05rem;margin:.4rem 0}
p{margin:.5rem 0;max-width:68ch}
a{color:var(--link)}
.skip{position:absolute;left:-999rem}.skip:focus{left:1rem;top:1rem;background:var(--paper);padding:.5rem;z-index:9}
:focus-visible{outline:3px solid var(--link);outline-offset:2px}
#answer p{max-width:none;margin:.25rem 0}.verdict{border-left:4px solid var(--warn);background:var(--soft);\
padding:.4rem 1rem;margin:.8rem 0}.verdict.deploy{border-color:var(--good)}#question{font-size:1.05rem}\
#question p{max-width:none}
.sheet h3{margin:.6rem 0 .2rem}.sheet .chart{height:21rem}.columns{display:grid;\
grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:0 2rem}.sheet ul,.sheet ol{margin:.2rem 0;\
padding-left:1.3rem}.checks li{max-width:100ch}
.sheet-table tr[data-role^=deploy] th{font-weight:600}.loss td,.loss th{white-space:normal}
form{background:var(--soft);border:1px solid var(--line);border-radius:.5rem;padding:1rem;margin-top:.5rem}
.fields{display:grid;grid-template-columns:repeat(auto-fit,minmax(11.5rem,1fr));gap:.8rem}
label{display:block;font-size:.9rem;font-weight:600}
label small{display:block;font-weight:400;color:var(--muted)}
input,select,button{font:inherit;font-weight:400;color:inherit}
input[type=text],input[type=search],select{width:100%;padding:.35rem .5rem;border:1px solid var(--muted);\
border-radius:.3rem;background:var(--paper)}
input[aria-invalid=true]{border-color:var(--warn);border-width:2px}
form button,.tools button{padding:.35rem .9rem;border:1px solid var(--muted);border-radius:.3rem;\
background:var(--paper);cursor:pointer}
.row{display:flex;flex-wrap:wrap;gap:.8rem;align-items:center;margin-top:.8rem}
#status{min-height:1.5em;margin:0}
#status.wrong{color:var(--warn);font-weight:600}
code{font:.88em/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:var(--soft);padding:.1em .3em;\
border-radius:.2em;overflow-wrap:anywhere}
.command{display:block;padding:.5rem;white-space:pre-wrap}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(10rem,1fr));gap:.6rem;margin:.6rem 0}
.facts div{border:1px solid var(--line);border-radius:.4rem;padding:.4rem .6rem}
dt{font-size:.82rem;color:var(--muted)}dd{margin:0;font-weight:600;font-variant-numeric:tabular-nums}
.scroll{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--muted);padding:.3rem 0;caption-side:top}caption span{display:block;\
max-width:min(68ch,calc(100vw - 3rem))}
th,td{padding:.28rem .55rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
td{white-space:nowrap}
thead th{white-space:nowrap;background:var(--soft)}
tbody th{font-weight:400}
.number{text-align:right}
thead button{all:unset;cursor:pointer;font-weight:600}
thead button:focus-visible{outline:3px solid var(--link)}
th[aria-sort=ascending] button::after{content:" \\25B2"}th[aria-sort=descending] button::after{content:" \\25BC"}
tr.recommended{background:color-mix(in srgb,var(--good) 14%,transparent)}
tr.removed,tr.empty{color:var(--muted)}
.state{font-size:.8rem;font-weight:600}.recommended .state{color:var(--good)}
.why{font-size:.78rem;min-width:22rem;white-space:normal}
.tools{display:flex;flex-wrap:wrap;gap:.8rem;align-items:end;margin:.6rem 0}.tools label{min-width:9rem}
.evidence{display:inline-block;font-size:.76rem;font-weight:600;padding:0 .4rem;border-radius:.8rem;\
border:1.5px solid var(--muted);vertical-align:middle}
.evidence.exact,.evidence.inside,.evidence.measured,.evidence.interpolated{background:var(--good);\
border-color:var(--good);color:var(--paper)}
.evidence.attainable,.evidence.roofline{border-style:dashed;font-style:italic}\
.evidence.extrapolated{border-style:dotted}
#figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,34rem),1fr));gap:1.5rem}
figure{margin:0;border:1px solid var(--line);border-radius:.5rem;padding:.8rem;min-width:0}
figure.attainable,figure.roofline{border-style:dashed}
.stale{opacity:.4}pre.reason{white-space:pre-wrap}
.units{color:var(--muted);font-size:.85rem;margin:.2rem 0}
.chart{position:relative;height:24rem;min-width:0}
figcaption{font-size:.88rem}.source{display:block;color:var(--muted);font-size:.8rem;margin-top:.25rem}
.marks,#notes li{max-width:90ch}
nav{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;margin:.8rem 0}
summary{cursor:pointer;padding:.35rem 0;font-weight:600}summary small{font-weight:400;color:var(--muted);\
margin-left:.4rem}
#paper-part details{border-bottom:1px solid var(--line)}#paper-part h3{margin-top:1.6rem}\
#paper-part .scroll{margin-bottom:.8rem}#paper-part tbody th{min-width:12rem}#paper-part li{max-width:90ch}\
#codecs-part tbody th{white-space:nowrap}
.evidence.wrong{border-color:var(--warn);color:var(--warn)}
footer{margin:2.5rem auto 2rem;color:var(--muted);font-size:.88rem}
@media (max-width:40rem){body{font-size:15px}h1{font-size:1.4rem}.chart{height:23rem}figure{padding:.5rem;\
border-left:0;border-right:0;border-radius:0}main,header,footer{padding:0 .8rem}#paper-part tbody th{min-width:8rem}}
@media print{:root{color-scheme:light;--ink:#000;--muted:#444;--paper:#fff;--line:#bbb;--soft:#fff;--link:#000;\
--good:#00543d;--warn:#000}
body{font-size:10pt}form,#ask,.tools,.skip,#status,nav{display:none}
.sheet{break-after:page;font-size:8.4pt;line-height:1.32;padding-top:0}.sheet h1{font-size:14pt;margin:0}\
.sheet h3{font-size:9.5pt;margin:.35rem 0 .1rem}#question{font-size:9pt}.verdict{padding:.1rem .6rem;margin:.3rem 0}\
.sheet p{margin:.15rem 0}.sheet table{font-size:7.2pt}.sheet figure{padding:.2rem .4rem;margin:0}\
.sheet figure .words,.sheet .units{display:none}.sheet .chart{height:4.4cm}.sheet .chart canvas{max-height:4.4cm}\
.sheet figcaption{font-size:7pt}.columns{grid-template-columns:3fr 2fr;gap:0 1rem}.scroll{overflow:visible}\
figure,tr,#answer{break-inside:avoid}h2,h3{break-after:avoid}
#figures{display:block}figure{margin-bottom:1rem}.chart{height:auto}.chart canvas{display:block!important;\
width:auto!important;height:auto!important;max-width:100%;max-height:8.6cm}.why{min-width:0;font-size:inherit}\
.evidence{background:none!important;color:var(--ink)!important;font-size:inherit}table{font-size:7.5pt}\
th,td{padding:.12rem .25rem}td,thead th{white-space:normal}thead{display:table-header-group}@page{margin:1.4cm}}
`;
