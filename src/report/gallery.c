/*
 * The gallery's page. Without scripts all pictures are shown one below the other; the script makes a slider of two of
 * them.
 */
#include "report/gallery.h"

#include "data/detail.h"
#include "report/drawing_internal.h"
#include "report/markup.h"

#include <math.h>
#include <stdlib.h>

#define SPACE "\xC2\xA0"     /* that does not break */
#define UP    "\xE2\x86\x91" /* arrows: where better figures are */
#define DOWN  "\xE2\x86\x93"
enum { QUALITY = 90 }; /* of WebP, for whole pictures; enlarged parts are lossless */

static const char style[] =
    "*{box-sizing:border-box}\n"
    ":root{color-scheme:light dark;--panel:#f5f6f8;--accent:#0067b8}\n"
    "@media (prefers-color-scheme:dark){:root{--panel:#1f242a;--accent:#6cb8ff}}\n"
    "html{-webkit-text-size-adjust:100%;text-size-adjust:100%}\n"
    "body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,'Segoe UI',Roboto,'DejaVu Sans',"
    "sans-serif;overflow-wrap:anywhere}\n"
    "main{max-width:1160px;margin:0 auto;padding:24px 20px 48px}\n"
    "h1{font-size:1.7rem;line-height:1.25;margin:0 0 4px}\n"
    "h2{font-size:1.25rem;margin:44px 0 12px;padding-bottom:4px;border-bottom:1px solid var(--grid)}\n"
    ".note,.about,figcaption{color:var(--soft)}\n.note,figcaption{font-size:.875rem}\n.about{margin:0}\n"
    ".scroll{overflow-x:auto;border:1px solid var(--grid);border-radius:8px;margin:20px 0 8px;max-width:760px}\n"
    "table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;width:100%}\n"
    "th,td{padding:6px 12px;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}\n"
    "tbody tr:last-child>*{border-bottom:0}\nthead th{color:var(--soft);font-weight:600}\n"
    "th:first-child{text-align:left;white-space:normal;min-width:8em}\ntd.best{font-weight:700}\n"
    "h2 small{font-size:.875rem;font-weight:400;color:var(--soft)}\n"
    "figure{margin:0;min-width:0}\nfigcaption{line-height:1.35;margin-top:4px}\nfigcaption b{color:var(--ink)}\n"
    ".views{display:grid;gap:16px;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr))}\n"
    ".views img{display:block;width:100%;height:auto;border-radius:6px}\n"
    ".crops{display:grid;gap:16px 12px;grid-template-columns:repeat(auto-fill,min(192px,calc(50% - 6px)));"
    "margin-top:16px}\n"
    ".crops img{display:block;width:100%;height:auto;image-rendering:pixelated;border-radius:4px}\n"
    ".slides .views{display:none}\n"
    ".choice{display:flex;flex-wrap:wrap;gap:8px 16px;margin:0 0 10px;font-size:.9rem}\n"
    ".choice label{display:flex;gap:8px;align-items:center;min-width:0}\n"
    "select{font:inherit;color:inherit;background:var(--panel);border:1px solid var(--soft);border-radius:6px;"
    "padding:5px 8px;max-width:100%;min-width:0}\n"
    ".stage{position:relative;overflow:hidden;border-radius:8px;cursor:ew-resize;touch-action:pan-y;user-select:none;"
    "-webkit-user-select:none;width:min(100%,calc(var(--w)*2px),max(320px,80vh*var(--w)/var(--h)));"
    "aspect-ratio:var(--w)/var(--h);background:var(--panel)}\n"
    ".stage:focus-within{outline:3px solid var(--accent);outline-offset:2px}\n"
    ".stage img{position:absolute;inset:0;width:100%;height:100%;pointer-events:none}\n"
    ".stage .first{clip-path:inset(0 calc(100% - var(--at)) 0 0)}\n"
    ".stage input{position:absolute;left:0;bottom:0;width:100%;height:1px;opacity:0;margin:0;pointer-events:none}\n"
    ".edge{position:absolute;top:0;bottom:0;left:var(--at);width:2px;margin-left:-1px;background:#fff;"
    "box-shadow:0 0 0 1px #0008;pointer-events:none}\n"
    ".edge::after{content:'\\2194';position:absolute;left:50%;top:50%;width:40px;height:40px;margin:-20px;"
    "line-height:38px;text-align:center;font-size:22px;color:#111;background:#fff;border-radius:50%;"
    "box-shadow:0 0 0 1px #0006,0 2px 8px #0006}\n"
    ".tag{position:absolute;top:8px;max-width:45%;padding:2px 8px;border-radius:4px;background:#000b;color:#fff;"
    "font-size:.8rem;pointer-events:none;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}\n"
    ".tag.left{left:8px}.tag.right{right:8px}\n"
    ".mark{position:absolute;border:1px solid #fff;outline:1px solid #000a;pointer-events:none}\n"
    "@media (max-width:520px){main{padding:16px 16px 40px}th,td{padding:6px}th:first-child{min-width:5em}}\n"
    "@media print{.slides .views{display:grid}.stage,.choice{display:none}figure{break-inside:avoid}}\n";

static const char script[] =
    "document.documentElement.classList.add('slides');\n"
    "document.querySelectorAll('.views').forEach(views => {\n"
    "  const figures = [...views.querySelectorAll('figure')];\n"
    "  const make = (tag, cls) => Object.assign(document.createElement(tag), {className: cls || ''});\n"
    "  const stage = make('div', 'stage'), choice = make('p', 'choice'), edge = make('span', 'edge');\n"
    "  const range = make('input');\n"
    "  const both = [['Left', 'first', 'left', 0], ['Right', 'second', 'right', Math.min(1, figures.length - 1)]];\n"
    "  const sides = both.map(([word, cls, place, index]) => {\n"
    "    const image = make('img', cls), tag = make('span', 'tag ' + place);\n"
    "    const select = make('select'), label = make('label');\n"
    "    figures.forEach((figure, i) => select.add(new Option(figure.dataset.name, i)));\n"
    "    select.value = index;\n"
    "    label.append(word + ' ', select);\n"
    "    choice.append(label);\n"
    "    select.onchange = () => {\n"
    "      const figure = figures[select.value];\n"
    "      image.src = figure.querySelector('img').src;\n"
    "      image.alt = tag.textContent = figure.dataset.name;\n"
    "      const [left, right] = sides.map(side => side.tag.textContent);\n"
    "      range.setAttribute('aria-label', `Border between ${left} on the left and ${right} on the right`);\n"
    "    };\n"
    "    return {image, tag, select};\n"
    "  });\n"
    "  const first = figures[0].querySelector('img'), mark = make('span', 'mark');\n"
    "  mark.style.cssText = views.dataset.mark;\n"
    "  stage.style.setProperty('--w', first.getAttribute('width'));\n"
    "  stage.style.setProperty('--h', first.getAttribute('height'));\n"
    "  Object.assign(range, {type: 'range', min: 0, max: 100, step: 1, value: 50});\n"
    "  const show = () => stage.style.setProperty('--at', range.value + '%');\n"
    "  range.oninput = show;\n"
    "  const drag = event => {\n"
    "    const box = stage.getBoundingClientRect();\n"
    "    range.value = 100 * (event.clientX - box.left) / box.width;\n"
    "    show();\n"
    "  };\n"
    "  stage.onpointerdown = event => {\n"
    "    if (event.button) return;\n"
    "    stage.setPointerCapture(event.pointerId);\n"
    "    drag(event);\n"
    "    range.focus({preventScroll: true});\n"
    "    event.preventDefault();\n"
    "  };\n"
    "  stage.onpointermove = event => stage.hasPointerCapture(event.pointerId) && drag(event);\n"
    "  stage.append(sides[1].image, sides[0].image, mark, edge, sides[0].tag, sides[1].tag, range);\n"
    "  views.before(choice, stage);\n"
    "  sides.forEach(side => side.select.onchange());\n"
    "  show();\n"
    "});\n";

/** "PSNR 27.31 dB, SSIM 0.8012, NIQE 5.21", as far as they are known: the truth has NIQE at most. */
static void write_figures(FILE *out, const cod_gallery_view *view)
{
    if (!isnan(view->quality.psnr_y))
        fprintf(out, "PSNR" SPACE "%s" SPACE "dB, SSIM" SPACE "%s%s", cod_number_text(view->quality.psnr_y, 2).text,
                cod_number_text(view->quality.ssim_y, 4).text, isnan(view->niqe) ? "" : ", ");
    if (!isnan(view->niqe))
        fprintf(out, "NIQE" SPACE "%s", cod_number_text(view->niqe, 2).text);
}

/** A cell, in bold where it holds the best model's figure. */
static void write_cell(FILE *out, double value, double best, int digits)
{
    fprintf(out, "<td%s>%s</td>", value == best ? " class=\"best\"" : "", cod_number_text(value, digits).text);
}

static void write_means(FILE *out, const cod_gallery_head *head)
{
    const size_t models = head->mean_count - 1;
    double psnr = -INFINITY, ssim = -INFINITY, niqe = INFINITY;
    for (size_t i = 0; i < models; i++) {
        psnr = fmax(psnr, head->means[i].quality.psnr_y);
        ssim = fmax(ssim, head->means[i].quality.ssim_y);
        niqe = fmin(niqe, head->means[i].niqe);
    }
    if (!head->with_truth && !head->with_niqe)
        return;
    fprintf(out,
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Means over all pictures\">"
            "<table><thead><tr><th scope=\"col\">mean</th>%s%s</tr></thead><tbody>\n",
            head->with_truth ? "<th scope=\"col\">PSNR, dB" SPACE UP "</th><th scope=\"col\">SSIM" SPACE UP "</th>"
                             : "",
            head->with_niqe ? "<th scope=\"col\">NIQE" SPACE DOWN "</th>" : "");
    for (size_t i = 0; i < (head->with_truth ? head->mean_count : models); i++) {
        const cod_gallery_view *mean = &head->means[i];
        fputs("<tr><th scope=\"row\">", out);
        cod_markup(out, mean->name);
        fputs("</th>", out);
        if (head->with_truth) {
            write_cell(out, i < models ? mean->quality.psnr_y : NAN, psnr, 2);
            write_cell(out, i < models ? mean->quality.ssim_y : NAN, ssim, 4);
        }
        if (head->with_niqe)
            write_cell(out, mean->niqe, niqe, 2);
        fputs("</tr>\n", out);
    }
    fprintf(out, "</tbody></table></div>\n<p class=\"note\">%s%s%s%s</p>\n",
            head->with_truth ? UP " higher is better" : "", head->with_truth && head->with_niqe ? ", " : "",
            head->with_niqe ? DOWN " lower is better" : "",
            head->with_truth ? ". PSNR and SSIM compare the luma with that of the truth." : ".");
    if (head->with_niqe)
        fputs("<p class=\"note\">NIQE measures without the truth how unnatural a picture looks.</p>\n", out);
}

void cod_gallery_write_head(FILE *out, const cod_gallery_head *head)
{
    fputs("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; "
          "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n<title>",
          out);
    cod_markup(out, head->title);
    fputs("</title>\n<style>\n", out);
    cod_drawing_style(out);
    fputs(style, out);
    fputs("</style>\n</head>\n<body>\n<main>\n<h1>", out);
    cod_markup(out, head->title);
    fputs("</h1>\n<p class=\"about\">", out);
    cod_markup(out, head->about);
    fputs("</p>\n", out);
    write_means(out, head);
}

/** An <img> with the picture in it. */
static cod_status write_image(FILE *out, const cod_image *image, const char *name, int quality)
{
    void *bytes = NULL;
    size_t count = 0;
    COD_TRY(cod_image_encode(image, COD_IMAGE_WEBP, quality, &bytes, &count));
    fprintf(out, "<img width=\"%lld\" height=\"%lld\" alt=\"", (long long)image->width, (long long)image->height);
    cod_markup(out, name);
    fputs("\" src=\"data:image/webp;base64,", out);
    cod_markup_base64(out, bytes, count);
    fputs("\">", out);
    free(bytes);
    return COD_OK;
}

static cod_status write_views(FILE *out, const cod_gallery_picture *picture)
{
    const double width = (double)picture->views[0].image.width, height = (double)picture->views[0].image.height;
    fprintf(out, "<div class=\"views\" data-mark=\"left:%.3f%%;top:%.3f%%;width:%.3f%%;height:%.3f%%\">\n",
            100 * (double)picture->left / width, 100 * (double)picture->top / height,
            100 * (double)picture->width / width, 100 * (double)picture->height / height);
    for (size_t i = 0; i < picture->view_count; i++) {
        const cod_gallery_view *view = &picture->views[i];
        fputs("<figure data-name=\"", out);
        cod_markup(out, view->name);
        fputs("\">", out);
        COD_TRY(write_image(out, &view->image, view->name, QUALITY));
        fputs("<figcaption>", out);
        cod_markup(out, view->name);
        fputs("</figcaption></figure>\n", out);
    }
    fputs("</div>\n", out);
    return COD_OK;
}

static cod_status write_crop(FILE *out, const cod_gallery_picture *picture, size_t index)
{
    const cod_gallery_view *view = &picture->views[index];
    cod_image crop;
    COD_TRY(cod_detail_cut(view->image.pixels, view->image.width, picture->left, picture->top, picture->width,
                           picture->height, &crop));
    fputs("<figure>", out);
    const cod_status status = write_image(out, &crop, view->name, COD_IMAGE_BEST_QUALITY);
    cod_image_clear(&crop);
    fputs("<figcaption><b>", out);
    cod_markup(out, view->name);
    fputs("</b><br>", out);
    write_figures(out, view);
    fputs("</figcaption></figure>\n", out);
    return status;
}

cod_status cod_gallery_write_picture(FILE *out, const cod_gallery_picture *picture)
{
    fputs("<section class=\"picture\">\n<h2>", out);
    cod_markup(out, picture->title);
    fprintf(out, " <small>%lld" SPACE "\xC3\x97" SPACE "%lld pixels</small></h2>\n",
            (long long)picture->views[0].image.width, (long long)picture->views[0].image.height);
    COD_TRY(write_views(out, picture));
    fputs("<div class=\"crops\">\n", out);
    bool with_figures = false;
    for (size_t i = 0; i < picture->view_count; i++) {
        COD_TRY(write_crop(out, picture, i));
        with_figures = with_figures || !isnan(picture->views[i].quality.psnr_y) || !isnan(picture->views[i].niqe);
    }
    fprintf(out,
            "</div>\n<p class=\"note\">The part in the frame, enlarged, each pixel as a square.%s</p>\n</section>\n",
            with_figures ? " The figures are of the whole picture." : "");
    return COD_OK;
}

void cod_gallery_write_end(FILE *out)
{
    fprintf(out, "</main>\n<script>\n%s</script>\n</body>\n</html>\n", script);
}
