/* The page around the sections: head, style, failed runs, how it was made; and the whole report from a folder. */
#include "report/report.h"

#include "core/log.h"
#include "io/file.h"
#include "report/report_internal.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PAGE = 1 << 30 }; /* bytes of a page that lies there already */

static const char style[] =
    "*{box-sizing:border-box}\n"
    ":root{color-scheme:light dark;--panel:#f5f6f8;--better:#00704f;--worse:#b3400a}\n"
    "@media (prefers-color-scheme:dark){:root{--panel:#1f242a;--better:#4fd6ac;--worse:#ff9a66}}\n"
    "html{-webkit-text-size-adjust:100%;text-size-adjust:100%}\n"
    "body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,'Segoe UI',Roboto,'DejaVu Sans',"
    "sans-serif;overflow-wrap:anywhere}\n"
    "main{max-width:1160px;margin:0 auto;padding:24px 20px 48px}\n"
    "h1{font-size:1.7rem;line-height:1.25;margin:0 0 4px}\nh2{font-size:1.25rem;margin:40px 0 12px;padding-bottom:4px;"
    "border-bottom:1px solid var(--grid)}\nh3{font-size:1.05rem;margin:20px 0 6px}\n"
    ".note,.about,figcaption,small{color:var(--soft)}\n.note,figcaption{font-size:.875rem}\n.about{margin:0}\n"
    "#verdict,#facts{background:var(--panel);border-radius:10px;padding:4px 20px 8px;margin-top:20px}\n"
    "#verdict h2{margin-top:12px;border:0}\n.best{font-size:1.1rem}\n"
    "ul.verdicts{list-style:none;padding:0}\nul.verdicts li{padding:3px 0 3px 1.8em;position:relative}\n"
    ".sign{position:absolute;left:.2em;font-weight:700}\n.better .sign,.better strong{color:var(--better)}\n"
    ".worse .sign,.worse strong{color:var(--worse)}\n.warning{color:var(--worse)}\n"
    ".scroll{overflow-x:auto;border:1px solid var(--grid);border-radius:8px;margin:12px 0}\n"
    "table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;overflow-wrap:normal;width:100%}"
    "\n"
    "th,td{padding:6px 10px;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}\n"
    "tr:last-child>*{border-bottom:0}\nthead "
    "th{white-space:normal;vertical-align:bottom;min-width:5.5em;line-height:1.3;"
    "color:var(--soft);font-weight:600}\n"
    "tbody th{text-align:left;font-weight:600;position:sticky;left:0;background:var(--paper);max-width:16em;"
    "white-space:normal;overflow-wrap:anywhere;min-width:10.5em}\n"
    "th.arm{padding-left:46px}.arm .sample{position:absolute;left:12px;top:10px}\n"
    "thead th:first-child{text-align:left;position:sticky;left:0;background:var(--paper)}\n"
    "tr.group th{background:var(--panel);position:static;max-width:none}\ntr.group span{position:sticky;left:12px}\n"
    ".words{text-align:left;white-space:normal;min-width:14em;overflow-wrap:anywhere}\n"
    ".sample{width:26px;height:14px}\n"
    ".figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,460px),1fr));gap:24px 32px}\n"
    "figure{margin:0;min-width:0}\n.figures>figure{max-width:600px}\n.figures "
    "svg{display:block;width:100%;height:auto}\n"
    "figcaption{margin-top:4px}\n.file{font-family:ui-monospace,monospace;font-size:.8125rem}\n"
    ".crops{display:flex;flex-wrap:wrap;gap:16px}\n.crop figcaption{line-height:1.3;max-width:200px}\n"
    ".crop img{display:block;image-rendering:pixelated;max-width:none;width:calc(var(--w)*var(--wide)*1px);"
    "height:calc(var(--h)*var(--wide)*1px)}\n.crop .warning{max-width:200px}\n"
    ".picture{margin:0 0 16px}.picture img{max-width:100%;height:auto}\n"
    "details{margin:12px 0}\nsummary{cursor:pointer}\n"
    "pre{overflow:auto;max-height:32em;background:var(--panel);border-radius:8px;padding:12px 16px;font-size:.8125rem;"
    "line-height:1.4;overflow-wrap:normal}\ncode,pre{font-family:ui-monospace,'DejaVu Sans Mono',monospace}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 20px}\ndt{color:var(--soft)}\ndd{margin:0}\n"
    "@media (max-width:520px){main{padding:16px 16px 40px}#verdict,#facts{padding:2px 14px 6px;margin-left:-6px;"
    "margin-right:-6px}dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:8px}"
    ".crop img{width:calc(var(--w)*var(--narrow)*1px);height:calc(var(--h)*var(--narrow)*1px)}.crops{gap:12px}"
    "th,td{padding:6px 9px}tbody th{min-width:10.5em;max-width:11em}}\n"
    "@media print{.scroll,pre{overflow:visible;max-height:none}figure,li{break-inside:avoid}}\n";

/** "2026-11-22T01:50:00Z" as people write it; what is no such time stays as it is. */
static void write_time(FILE *out, const char *text)
{
    int year, month, day, hour, minute, end = 0;
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%*2dZ%n", &year, &month, &day, &hour, &minute, &end) == 5 && end > 0 &&
        text[end] == '\0')
        fprintf(out, "%d-%02d-%02d %02d:%02d UTC", year, month, day, hour, minute);
    else
        cod_markup(out, text);
}

void cod_report_head(cod_report *report, const char *title)
{
    fputs("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src "
          "'unsafe-inline'\">\n",
          report->out);
    if (report->refresh_s > 0)
        fprintf(report->out, "<meta http-equiv=\"refresh\" content=\"%d\">\n", report->refresh_s);
    fputs("<title>", report->out);
    cod_markup(report->out, title);
    fputs("</title>\n<style>\n", report->out);
    cod_drawing_style(report->out);
    fputs(style, report->out);
    fputs("</style>\n</head>\n<body>\n<main>\n<h1>", report->out);
    cod_markup(report->out, title);
    fputs("</h1>\n", report->out);
}

static void write_head(cod_report *report)
{
    const cod_report_data *data = report->data;
    cod_report_head(report, data->title);
    fprintf(report->out, "<p class=\"about\">%zu arm%s", data->arm_count, data->arm_count == 1 ? "" : "s");
    if (data->budget[0] != '\0') {
        fputs(", ", report->out);
        cod_markup(report->out, data->budget);
    }
    if (data->created[0] != '\0') {
        fputs(" · ", report->out);
        write_time(report->out, data->created);
    }
    fputs("</p>\n", report->out);
}

static void write_failure(cod_report *report, const cod_report_arm *arm, const cod_report_run *run)
{
    fputs("<tr><th scope=\"row\">", report->out);
    cod_markup(report->out, arm->name);
    fprintf(report->out, "</th><td>%s</td>", cod_number_text(run->seed, 0).text);
    if (report->data->rate_count > 1) {
        fputs("<td>", report->out);
        cod_markup(report->out, cod_report_rate_label(report, run->rate));
        fputs("</td>", report->out);
    }
    fputs("<td>", report->out);
    cod_markup(report->out, run->state[0] != '\0' ? run->state : "unknown");
    fputs("</td><td class=\"words\">", report->out);
    cod_markup(report->out, run->message[0] != '\0' ? run->message : "(no message)");
    if (run->folder[0] != '\0') {
        fputs("<br><code>", report->out);
        cod_markup(report->out, run->folder);
        fputs("</code>", report->out);
    }
    fputs("</td></tr>\n", report->out);
}

cod_status cod_report_failures(cod_report *report)
{
    const cod_report_data *data = report->data;
    bool any = false;
    for (size_t i = 0; i < data->arm_count; i++)
        for (size_t k = 0; k < data->arms[i].run_count; k++) {
            if (data->arms[i].runs[k].finished)
                continue;
            if (!any)
                fprintf(report->out,
                        "<section id=\"failures\">\n<h2>Runs that did not finish</h2>\n<div class=\"scroll\" "
                        "tabindex=\"0\" role=\"region\" aria-label=\"Runs that did not finish\"><table><thead><tr><th "
                        "scope=\"col\">arm</th><th scope=\"col\">seed</th>%s<th scope=\"col\">state</th><th "
                        "scope=\"col\" class=\"words\">message</th></tr></thead><tbody>\n",
                        data->rate_count > 1 ? "<th scope=\"col\">link</th>" : "");
            any = true;
            write_failure(report, &data->arms[i], &data->arms[i].runs[k]);
        }
    if (any)
        fputs("</tbody></table></div>\n</section>\n", report->out);
    return COD_OK;
}

void cod_report_fact(cod_report *report, const char *name, const char *fact)
{
    if (fact[0] == '\0')
        return;
    fprintf(report->out, "<dt>%s</dt><dd>", name);
    cod_markup(report->out, fact);
    fputs("</dd>\n", report->out);
}

/** A word as a shell takes it. */
static void write_shell_word(cod_report *report, const char *word)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-+,:=@%";
    char *quoted = cod_arena_alloc(report->arena, 4 * strlen(word) + 3);
    if (quoted == NULL || (word[0] != '\0' && strspn(word, plain) == strlen(word))) {
        cod_markup(report->out, word);
        return;
    }
    char *end = quoted;
    *end++ = '\'';
    for (const char *c = word; *c != '\0'; c++) {
        if (*c == '\'') {
            memcpy(end, "'\\'", 3); /* ends the quotation, adds a quote, and begins the next quotation */
            end += 3;
        }
        *end++ = *c;
    }
    memcpy(end, "'", 2);
    cod_markup(report->out, quoted);
}

void cod_report_end_making(cod_report *report, const char *config)
{
    fputs("<dt>To write this page anew</dt><dd><code>codistill report ", report->out);
    write_shell_word(report, report->folder);
    fputs("</code></dd>\n</dl>\n", report->out);
    if (config[0] != '\0') {
        fputs("<details><summary>The configuration, as resolved</summary>\n<pre>", report->out);
        cod_markup(report->out, config);
        fputs("</pre></details>\n", report->out);
    }
    fputs("</section>\n", report->out);
}

static void write_making(cod_report *report)
{
    const cod_report_data *data = report->data;
    fputs("<section id=\"making\">\n<h2>How it was made</h2>\n<dl>\n", report->out);
    cod_report_fact(report, "Machine", data->machine);
    cod_report_fact(report, "Codistill", data->version);
    cod_report_fact(report, "Made", data->created);
    cod_report_fact(report, "Budget", data->budget);
    cod_report_fact(report, "Configuration", data->config);
    if (data->config[0] != '\0') {
        fputs("<dt>To repeat it</dt><dd><code>codistill compare ", report->out);
        write_shell_word(report, data->config);
        fputs("</code></dd>\n", report->out);
    }
    cod_report_end_making(report, data->config_text);
}

static cod_status write_sections(cod_report *report)
{
    write_head(report);
    COD_TRY(cod_report_verdict(report));
    COD_TRY(cod_report_arms(report));
    COD_TRY(cod_report_tuning(report));
    COD_TRY(cod_report_rates(report));
    COD_TRY(cod_report_curves(report));
    COD_TRY(cod_report_costs(report));
    COD_TRY(cod_report_agreement(report));
    COD_TRY(cod_report_crops(report));
    COD_TRY(cod_report_photographs(report));
    COD_TRY(cod_report_failures(report));
    write_making(report);
    return COD_OK;
}

/** Writes the page, and removes PNG files that only the previous page names. */
static cod_status replace_page(const cod_report *report, const char *text, size_t bytes)
{
    void *earlier = NULL;
    size_t earlier_bytes;
    const char *path = cod_path_join(report->arena, report->folder, "report.html");
    COD_REQUIRE_MEMORY(path);
    if (cod_report_png_available() && cod_file_exists(path) &&
        cod_file_read(path, MAX_PAGE, &earlier, &earlier_bytes) != COD_OK)
        cod_log_warn("PNG files of earlier plots may stay: %s", cod_error_message());
    cod_status status = cod_file_write(path, text, bytes);
    if (earlier != NULL)
        COD_THEN(status, cod_report_remove_stale(report, earlier, text));
    free(earlier);
    return status;
}

cod_status cod_report_write_page(cod_report *report, cod_status (*sections)(cod_report *report))
{
    char *text = NULL;
    size_t bytes = 0;
    report->out = open_memstream(&text, &bytes);
    COD_REQUIRE_MEMORY(report->out);
    cod_status status = sections(report);
    fputs("</main>\n</body>\n</html>\n", report->out);
    const bool failed = ferror(report->out) != 0, unfinished = fclose(report->out) != 0;
    if (status == COD_OK && (failed || unfinished))
        status = cod_fail(COD_ERR_MEMORY, "no memory for the report");
    COD_THEN(status, replace_page(report, text, bytes));
    free(text);
    return status;
}

cod_status cod_report_write(const char *folder)
{
    cod_report_data data;
    cod_status status = cod_report_data_read(folder, &data);
    if (status == COD_OK) {
        cod_report report = {
            .data = &data, .folder = folder, .arena = &data.arena, .target = cod_report_find_target(&data)};
        status = cod_report_write_page(&report, write_sections);
        if (status == COD_OK && !cod_report_png_available() && report.drawings > 0)
            cod_log_warn("plots are not also written as PNG files: this build has no librsvg (librsvg2-dev)");
    }
    cod_report_data_clear(&data);
    return status;
}
